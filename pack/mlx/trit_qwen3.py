# Layers for models of two magnitudes a row, for mlx-lm (pack/mlx/FORMAT.md §4).
# config.json names this file; mlx-lm 0.30 or later imports Model and ModelArgs.
from dataclasses import dataclass, field
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models import qwen3

@dataclass
class ModelArgs(qwen3.ModelArgs):
    trit: dict = field(default_factory=dict)

class TwoPlaneLinear(nn.Module):
    def __init__(self, in_dims, out_dims, group):
        super().__init__()
        self.group_size, self.bits = group, 2
        self.weight = mx.zeros((out_dims, in_dims // 8), dtype=mx.uint32)
        self.scales = mx.zeros((out_dims, 2 * in_dims // group))
        self.biases = mx.zeros((out_dims, 2 * in_dims // group))
        self.freeze()
    def __call__(self, x):
        return mx.quantized_matmul(
            mx.concatenate([x, x], axis=-1), self["weight"], self["scales"], self["biases"],
            transpose=True, group_size=self.group_size, bits=2)

class Int8Embedding(nn.Module):
    def __init__(self, rows, dims, group):
        super().__init__()
        self.group_size, self.bits = group, 8
        self.weight = mx.zeros((rows, dims // 4), dtype=mx.uint32)
        self.scales = mx.zeros((rows, dims // group))
        self.biases = mx.zeros((rows, dims // group))
        self.freeze()
    def __call__(self, ids):
        q = mx.view(self["weight"][ids], mx.uint8).astype(mx.float32) - 128
        return q * self["scales"][ids][..., :1]
    def as_linear(self, x):
        return mx.quantized_matmul(x, self["weight"], self["scales"], self["biases"],
                                   transpose=True, group_size=self.group_size, bits=8)

class Model(qwen3.Model):
    def __init__(self, args):
        super().__init__(args)
        if args.trit.get("version") != 1:
            raise ValueError("unsupported trit pack version")
        g, swap = args.trit["group_size"], []
        mods = dict(self.named_modules())
        for path in args.trit["two_plane"]:
            rows, cols = mods[path].weight.shape
            swap.append((path, TwoPlaneLinear(cols, rows, g)))
        for path in args.trit.get("int8_embed", []):
            rows, cols = mods[path].weight.shape
            swap.append((path, Int8Embedding(rows, cols, g)))
        self.update_modules(tree_unflatten(swap))
