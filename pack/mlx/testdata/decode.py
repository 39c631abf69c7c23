# Lets mlx-lm, as it is installed, decode what is stored in a trajectories.json:
#   python decode.py PACK TRAJECTORIES FREE STEPS
# All prompts with the stored tokens before each step, and FREE of them by
# themselves for STEPS steps. Prints what it chose.
import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

model, _ = load_model(Path(sys.argv[1]), strict=True, trust_remote_code=True)
stored = json.load(open(sys.argv[2]))["trajectories"]
runs, nll, predicted = [], 0.0, 0
for i, t in enumerate(stored):
    window, first = t["prompt_ids"] + t["ids"], len(t["prompt_ids"]) - 1
    logits = np.array(model(mx.array([window]))[0], dtype=np.float64)
    two = np.sort(logits[first:-1], axis=-1)[:, -2:]
    top = logits.max(axis=-1, keepdims=True)
    logz = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
    nll += float((logz[:-1] - logits[np.arange(len(window) - 1), window[1:]]).sum())
    predicted += len(window) - 1
    run = {"forced": np.argmax(logits[first:-1], axis=-1).tolist(), "margins": (two[:, 1] - two[:, 0]).tolist()}
    if i < int(sys.argv[3]):
        prompt = mx.array(t["prompt_ids"])
        run["free"] = [int(token) for token, _ in generate_step(prompt, model, max_tokens=int(sys.argv[4]))]
    runs.append(run)
print(json.dumps({"program": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}", "runs": runs, "nll": nll, "predicted": predicted}))
