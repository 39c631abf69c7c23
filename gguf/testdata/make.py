#!/usr/bin/env python3
"""Makes blocks.json and gguf-py.gguf with the PyPI package gguf 0.19.0, whose
readings of the block formats and of the file are the second opinion that the
tests compare with:  python3 -m venv V && V/bin/pip install gguf==0.19.0 && V/bin/python make.py"""
import json, os
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T, quants

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)
blocks = []


def half(lo, hi):
    return np.float16(rng.uniform(lo, hi)).tobytes()


for t in (T.F16, T.BF16, T.Q4_0, T.Q5_0, T.Q8_0, T.Q6_K, T.TQ1_0, T.TQ2_0):
    n, size = gguf.GGML_QUANT_SIZES[t]
    count = max(3, 64 // n)
    raw = bytearray()
    for i in range(count):
        b = bytearray(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
        at = {T.Q4_0: 0, T.Q5_0: 0, T.Q8_0: 0, T.Q6_K: 208, T.TQ1_0: 52, T.TQ2_0: 64}.get(t)
        if at is not None:
            b[at:at + 2] = half(-2, 2) if i else np.float16(3e-7).tobytes()  # a subnormal scale first
        elif t == T.F16:
            b = bytearray(half(-70000, 70000) if i % 3 else half(-1e-6, 1e-6))
        else:
            b = bytearray(np.float32(rng.normal()).tobytes()[2:])
        raw += b
    v = quants.dequantize(np.frombuffer(bytes(raw), dtype=np.uint8), t).astype(np.float32)
    blocks.append(dict(type=t.name, id=int(t), raw=raw.hex(), values=v.tobytes().hex()))

# What its encoders make of ternary values, whose scale f16 holds.
ternary = []
for t in (T.TQ1_0, T.TQ2_0):
    for s in (0.375, 1.0, 0.0):
        x = (rng.integers(-1, 2, 512) * s).astype(np.float32)
        ternary.append(dict(type=t.name, id=int(t), raw=quants.quantize(x, t).tobytes().hex(), values=x.tobytes().hex()))

sizes = {t.name: dict(id=int(t), weights=n, bytes=b) for t, (n, b) in gguf.GGML_QUANT_SIZES.items()}
with open(os.path.join(here, "blocks.json"), "w") as f:
    json.dump(dict(made_by="make.py, gguf 0.19.0", sizes=sizes, blocks=blocks, ternary=ternary), f, indent=0)
    f.write("\n")

w = gguf.GGUFWriter(os.path.join(here, "gguf-py.gguf"), "qwen3")
w.add_uint8("t.u8", 200); w.add_int8("t.i8", -7); w.add_uint16("t.u16", 60000); w.add_int16("t.i16", -3)
w.add_uint32("t.u32", 4000000000); w.add_int32("t.i32", -5); w.add_uint64("t.u64", 2**63 + 1); w.add_int64("t.i64", -2**40)
w.add_float32("t.f32", 0.1); w.add_float64("t.f64", 0.1); w.add_bool("t.yes", True); w.add_bool("t.no", False)
w.add_string("t.text", "naïve „text“"); w.add_string("t.empty", "")
w.add_array("t.strings", ["a", "", "Ġthe", "日本"]); w.add_array("t.ints", [1, -2, 3]); w.add_array("t.floats", [0.5, -1.5])
w.add_array("t.bools", [True, False]); w.add_array("t.bytes", bytes([0, 255, 3]))
w.add_tensor("f32.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
w.add_tensor("f16.weight", np.arange(5, dtype=np.float16))
x = rng.normal(size=(2, 64)).astype(np.float32)
w.add_tensor("q8.weight", quants.quantize(x, T.Q8_0), raw_dtype=T.Q8_0)
w.add_tensor("i32", np.array([1, -1, 7], dtype=np.int32))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
