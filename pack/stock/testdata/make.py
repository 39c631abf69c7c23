"""Rounds rows of ternary and other values with llama.cpp's own quantisers.

python3 make.py LIBGGML_BASE.so > nearest.json

The library is libggml-base.so of the npm package @node-llama-cpp/linux-x64 3.22.1
(llama.cpp v0.5.0). Rows are float32 in hex, blocks are what ggml_quantize_chunk
gives without an importance matrix.
"""
import ctypes, json, random, struct, sys

lib = ctypes.CDLL(sys.argv[1])
f = lib.ggml_quantize_chunk
f.restype = ctypes.c_size_t
f.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
random.seed(5)
f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]

def ternary(lo, hi):
    lo, hi = f32(lo), f32(hi)
    return [random.choice([0, 0, lo, -lo, lo, -lo, hi, -hi]) for _ in range(256)]

rows = [ternary(0.031, 0.0577), ternary(0.02, 0.021), ternary(0.5, 3.0), ternary(1e-4, 2e-4), ternary(0.013, 0.026)]
rows += [[random.choice([0, f32(0.07), -f32(0.07)]) for _ in range(256)], [0.0] * 256]
rows += [[f32(q * 0.00123) for q in (random.randrange(-127, 128) for _ in range(256))]]
rows += [[0.0] * 16 + [f32(random.gauss(0, 1)) for _ in range(240)]]
out = []
for x in rows:
    src = (ctypes.c_float * 256)(*x)
    case = {"values": struct.pack("<256f", *x).hex()}
    for name, id, size in [("q4_0", 2, 144), ("q5_0", 6, 176), ("q8_0", 8, 272), ("q6_k", 14, 210)]:
        dst = ctypes.create_string_buffer(size)
        assert f(id, src, dst, 0, 1, 256, None) == size
        case[name] = dst.raw.hex()
    out.append(case)
json.dump({"made_by": "make.py with llama.cpp v0.5.0", "rows": out}, sys.stdout, indent=0)
print()
