# Lets transformers, as it is installed, decode what is stored in a
# trajectories.json: python decode.py DIR TRAJECTORIES FREE STEPS
# All prompts with the stored tokens before each step, and FREE of them by
# themselves for STEPS steps. Prints what it chose.
import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

torch.set_num_threads(2)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
stored = json.load(open(sys.argv[2]))["trajectories"]
runs, nll, predicted = [], 0.0, 0
with torch.no_grad():
    for i, t in enumerate(stored):
        window, first = t["prompt_ids"] + t["ids"], len(t["prompt_ids"]) - 1
        logits = model(torch.tensor([window])).logits[0].double()
        two = logits[first:-1].topk(2).values
        nll += float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(window[1:]), reduction="sum"))
        predicted += len(window) - 1
        run = {"forced": logits[first:-1].argmax(-1).tolist(), "margins": (two[:, 0] - two[:, 1]).tolist()}
        if i < int(sys.argv[3]):
            prompt = torch.tensor([t["prompt_ids"]])
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, temperature=None, top_p=None, top_k=None,
                                 eos_token_id=-1, max_new_tokens=int(sys.argv[4]))
            run["free"] = out[0, prompt.shape[1] :].tolist()
        runs.append(run)
print(json.dumps({"program": f"transformers {transformers.__version__}, torch {torch.__version__}", "dtype": str(model.dtype), "runs": runs, "nll": nll, "predicted": predicted}))
