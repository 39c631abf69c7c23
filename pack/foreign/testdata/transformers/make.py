#!/usr/bin/env python3
"""Makes tiny models with random weights by the transformers library and stores
what the library computes with them in float32:

    python3 make.py DIR        (needs torch, transformers, accelerate)

    DIR/bitnet-packed   U8 weights with weight_scale, as published checkpoints have them
    DIR/bitnet-trained  bf16 weights that the model makes ternary itself
    DIR/llama, qwen2, qwen3   bf16 weights that have two magnitudes a row
    DIR/expected.json   greedy tokens, their margins and logits, by model

A container's embeddings are int8 rows, so those of these models are multiples
-127 to 127 of a power of two, which bf16 holds. All else is random.
"""
import hashlib, json, os, sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the same arithmetic without a C compiler
import torch, transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.bitnet import ActQuant, WeightQuant, pack_weights

PROMPTS, STEPS = [[8, 17, 42, 7, 91, 5], [88, 3], [64, 64, 12, 30, 55, 9, 71, 2, 40]], 32
SHAPE = dict(vocab_size=96, hidden_size=64, intermediate_size=120, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
ROPE = dict(rope_type="default", rope_theta=10000.0)
BITNET = dict(quant_method="bitnet", linear_class="autobitlinear")
MODELS = {
    "bitnet-packed": ("bitnet", dict(tie_word_embeddings=False, hidden_act="relu2", rms_norm_eps=1e-5), dict(BITNET, quantization_mode="offline")),
    "bitnet-trained": ("bitnet", dict(tie_word_embeddings=True, hidden_act="relu2", rms_norm_eps=1e-5), dict(BITNET, quantization_mode="online")),
    "llama": ("llama", dict(tie_word_embeddings=False, rms_norm_eps=1e-5), None),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True, rms_norm_eps=1e-6), None),
    "qwen3": ("qwen3", dict(tie_word_embeddings=False, rms_norm_eps=1e-6), None),
}


def config(name):
    kind, extra, quant = MODELS[name]
    c = AutoConfig.for_model(kind, **SHAPE, **extra, rope_parameters=ROPE, dtype="bfloat16").to_dict()
    if quant:
        c["quantization_config"] = quant
    return c


def state(name, seed):
    """Random tensors of the model's shapes, all of them values of bf16."""
    g = torch.Generator().manual_seed(seed)
    c = config(name)
    c.pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(c.pop("model_type"), **c))
    out = {}
    for key, t in model.state_dict().items():
        if key == "lm_head.weight" and c["tie_word_embeddings"]:
            continue
        if "embed" in key or "lm_head" in key:
            q = torch.randint(-127, 128, t.shape, generator=g)
            t = q * 2.0 ** -torch.randint(9, 12, (t.shape[0], 1), generator=g)
        elif "norm" in key:
            t = 1 + torch.randn(t.shape, generator=g) / 8
        elif key.endswith("bias"):
            t = torch.randn(t.shape, generator=g) / 4
        elif name.startswith("bitnet"):
            t = torch.randn(t.shape, generator=g) * 0.25
        else:  # five values a row
            lo = 0.1 + 0.1 * torch.rand((t.shape[0], 1), generator=g)
            hi = lo * (2 + torch.rand(lo.shape, generator=g))
            kind = torch.rand(t.shape, generator=g)
            sign = torch.randint(0, 2, t.shape, generator=g) * 2 - 1
            t = sign * torch.where(kind < 0.5, 0.0, torch.where(kind < 0.8, lo, hi))
        out[key] = t.to(torch.bfloat16).contiguous()
    return out


def is_linear(key):
    return key.endswith("_proj.weight")


def pack(tensors):
    out = {}
    for key, t in tensors.items():
        if not is_linear(key):
            out[key] = t
            continue
        w = t.float()
        s = 1.0 / w.abs().mean().clamp_(min=1e-5)
        out[key] = pack_weights((w * s).round().clamp(-1, 1))
        out[key + "_scale"] = (1 / s).reshape(1).to(torch.bfloat16)
    return out


ties = []  # how far values that become 8-bit integers are from a tie, the nearest of each call


def watch(ctx, x):
    """ActQuant.forward, watched."""
    y = x.float() * (127 / x.float().abs().max(dim=-1, keepdim=True).values.clamp(min=1e-5))
    ties.append(float((y - y.floor() - 0.5).abs().min()))
    return original(ctx, x)


original, ActQuant.forward = ActQuant.forward, staticmethod(watch)


@torch.no_grad()
def run(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    torch.nn.Module.float(model)  # what is still bf16, exactly
    runs = []
    for prompt in PROMPTS:
        ids, margins = list(prompt), []
        ties.clear()
        for _ in range(STEPS):
            logits = model(torch.tensor([ids])).logits[0]
            top = logits[-1].topk(2).values
            margins.append(round(float(top[0] - top[1]), 6))
            ids.append(int(logits[-1].argmax()))
        runs.append(dict(prompt=prompt, tokens=ids[len(prompt):], margins=margins, last_logits=[float(x) for x in logits[-1]]))
        if ties:  # 127 has units of 7.6e-6: nearer ties are decided by the order of sums
            runs[-1]["nearest_tie"] = min(ties)
    return runs


def quantized(tensors):
    """What the library makes of trained weights: the codes' digest and the magnitude."""
    out = {}
    for key, t in tensors.items():
        if is_linear(key):
            w = WeightQuant.apply(t.float())
            out[key] = dict(codes=hashlib.sha256(w.sign().to(torch.int8).numpy().tobytes()).hexdigest(), magnitude=float(w.abs().max()))
    return out


def main(out):
    expected = dict(made_by=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32 on the CPU", models={})
    for seed, name in enumerate(MODELS):
        tensors = state(name, seed)
        if name == "bitnet-trained":
            expected["quantized"] = quantized(tensors)
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        save_file(pack(tensors) if name == "bitnet-packed" else tensors, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config(name), f, indent=1, sort_keys=True)
            f.write("\n")
        expected["models"][name] = run(path)
        for r in expected["models"][name]:
            print(name, r["tokens"], "smallest margin", min(r["margins"]), "nearest tie", r.get("nearest_tie"), file=sys.stderr)
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(expected, f, separators=(",", ":"))
        f.write("\n")


main(sys.argv[1])
