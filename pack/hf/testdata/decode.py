# Lets transformers, as it is installed, decode what trajectories.json files hold:
#   python decode.py LIMIT FREE STEPS  DIR TRAJECTORIES  [DIR TRAJECTORIES …]
# of each the first LIMIT prompts with the stored tokens before every step, and
# FREE of them alone for STEPS steps. Prints a list of what it chose.
import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM


@torch.no_grad()
def decode(path, trajectories, limit, free, steps):
    model = AutoModelForCausalLM.from_pretrained(path).eval()
    runs, nll, predicted = [], 0.0, 0
    for i, t in enumerate(json.load(open(trajectories))["trajectories"][:limit]):
        window, first = t["prompt_ids"] + t["ids"], len(t["prompt_ids"]) - 1
        logits = model(torch.tensor([window])).logits[0].double()
        two = logits[first:-1].topk(2).values
        nll += float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(window[1:]), reduction="sum"))
        predicted += len(window) - 1
        run = {"forced": logits[first:-1].argmax(-1).tolist(), "margins": (two[:, 0] - two[:, 1]).tolist()}
        if i < free:
            prompt = torch.tensor([t["prompt_ids"]])
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, temperature=None, top_p=None, top_k=None,
                                 eos_token_id=-1, max_new_tokens=steps)
            run["free"] = out[0, prompt.shape[1] :].tolist()
        runs.append(run)
    return {"program": f"transformers {transformers.__version__}, torch {torch.__version__}", "dtype": str(model.dtype), "runs": runs, "nll": nll, "predicted": predicted}


limit, free, steps = map(int, sys.argv[1:4])
print(json.dumps([decode(a, b, limit, free, steps) for a, b in zip(sys.argv[4::2], sys.argv[5::2])]))
