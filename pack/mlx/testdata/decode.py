# Lets mlx-lm, as it is installed, decode what trajectories.json files hold:
#   python decode.py LIMIT FREE STEPS  PACK TRAJECTORIES  [PACK TRAJECTORIES …]
# of each the first LIMIT prompts with the stored tokens before every step, and
# FREE of them alone for STEPS steps. Prints a list of what it chose.
import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model


def decode(pack, trajectories, limit, free, steps):
    model, _ = load_model(Path(pack), strict=True, trust_remote_code=True)
    runs, nll, predicted = [], 0.0, 0
    for i, t in enumerate(json.load(open(trajectories))["trajectories"][:limit]):
        window, first = t["prompt_ids"] + t["ids"], len(t["prompt_ids"]) - 1
        logits = np.array(model(mx.array([window]))[0], dtype=np.float64)
        two = np.sort(logits[first:-1], axis=-1)[:, -2:]
        top = logits.max(axis=-1, keepdims=True)
        logz = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
        nll += float((logz[:-1] - logits[np.arange(len(window) - 1), window[1:]]).sum())
        predicted += len(window) - 1
        run = {"forced": np.argmax(logits[first:-1], axis=-1).tolist(), "margins": (two[:, 1] - two[:, 0]).tolist()}
        if i < free:
            prompt = mx.array(t["prompt_ids"])
            run["free"] = [int(token) for token, _ in generate_step(prompt, model, max_tokens=steps)]
        runs.append(run)
    return {"program": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}", "runs": runs, "nll": nll, "predicted": predicted}


limit, free, steps = map(int, sys.argv[1:4])
print(json.dumps([decode(a, b, limit, free, steps) for a, b in zip(sys.argv[4::2], sys.argv[5::2])]))
