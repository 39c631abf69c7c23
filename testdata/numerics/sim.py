"""An independent simulation of NUMERICS.md (exact integers and written float32 order) in numpy, for Qwen3 containers.

usage: sim.py MODEL.bin trajectories.json P [f16|f32] [BITS.json]

Teacher-forces the stored tokens and prints where its greedy choice differs from them. With BITS.json it writes the
first 64 bits of the sha256 of each position's logits (little-endian float32): what the Go reference is compared with."""
import hashlib, json, struct, sys, numpy as np
f32 = np.float32
B = open(sys.argv[1], "rb").read(); P = int(sys.argv[3]); KV = sys.argv[4] if len(sys.argv) > 4 else "f16"
h = struct.unpack("<Iii9i2fi", B[:60]); (L, D, NH, NKV, HD, ROT, FF, V, MAXP) = h[3:12]; EPS, THETA, EOK = h[12:15]
off = 60
def vec(n):
    global off
    v = np.frombuffer(B, "<f4", n, off).copy(); off += 4*n; return v
def trit():
    global off
    r, c, cp, st = struct.unpack_from("<4i", B, off); off += 16
    pl = []
    for _ in range(3):
        pl.append(np.unpackbits(np.frombuffer(B, np.uint8, r*st, off).reshape(r, st), axis=1, bitorder="little")[:, :c].astype(np.float64)); off += r*st
    slo, shi = vec(r), vec(r); off += 8*r; off += 4
    t = pl[0]-pl[1]
    return t*(1-pl[2]), t*pl[2], slo, shi
def i8():
    global off
    r, c, cp, st = struct.unpack_from("<4i", B, off); off += 16
    q = np.frombuffer(B, np.int8, r*st, off).reshape(r, st)[:, :c].astype(np.float64); off += r*st
    s = vec(r); off += 4*r
    return q, s
emb = i8() if EOK == 2 else None
layers = []
for _ in range(L):
    layers.append(dict(n1=vec(D), n2=vec(D), qn=vec(HD), kn=vec(HD), **{k: trit() for k in ("q", "k", "v", "o", "g", "u", "d")}))
fn = vec(D); head = i8(); emb = emb or head
assert off == len(B)
QQ, LIM = {3: (23, 8355711), 2: (15, 32639), 1: (7, 127)}[P]
def keep(x, k): return np.where(np.abs(x) < f32(2.0**-k), f32(0), x).astype(f32)
def fold(v):
    n = v.shape[-1]
    while n > 1:
        n //= 2; v = (v[..., :n] + v[..., n:2*n]).astype(f32)
    return v[..., 0]
def recip(x):
    x = np.asarray(x, f32); y = (np.uint32(0x7EF311C7) - x.view(np.uint32)).view(f32)
    for _ in range(4): y = (y + (y*(f32(1)-(x*y).astype(f32)).astype(f32)).astype(f32)).astype(f32)
    return y
def rsqrt(x):
    x = np.asarray(x, f32); y = (np.uint32(0x5F3759DF) - (x.view(np.uint32) >> np.uint32(1))).view(f32); hx = (x*f32(0.5)).astype(f32)
    for _ in range(4):
        t = ((hx*y).astype(f32)*y).astype(f32); y = (y*(f32(1.5)-t).astype(f32)).astype(f32)
    return y
LN2HI, LN2LO, LOG2E = f32(0.693359375), f32(-2.12194440e-4), f32(1.4426950408889634)
C = [f32(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)]
def exp(x):
    x = np.asarray(x, f32); n = np.rint((x*LOG2E).astype(f32)).astype(f32)
    r = ((x-(n*LN2HI).astype(f32)).astype(f32)-(n*LN2LO).astype(f32)).astype(f32)
    p = np.full_like(r, C[0])
    for c in C[1:]: p = ((p*r).astype(f32)+c).astype(f32)
    z = (r*r).astype(f32); p = (((p*z).astype(f32)+r).astype(f32)+f32(1)).astype(f32)
    out = np.ldexp(p, n.astype(np.int32)).astype(f32)
    return np.where(x < f32(-30), f32(0), out).astype(f32)
def quant(x):
    m = float(np.max(np.abs(x)))
    if m < 2.0**-40: return np.zeros(len(x)), 0
    e = int(np.frexp(m)[1])
    if round(m*2.0**(QQ-e)) > LIM: e += 1
    return np.rint(x.astype(np.float64)*2.0**(QQ-e)), e
def lin(w, qe):
    q, e = qe; lo, hi, slo, shi = w; k = f32(2.0**(e-QQ))
    a = (lo@q).astype(f32); b = (hi@q).astype(f32)
    return ((a*(slo*k).astype(f32)).astype(f32)+(b*(shi*k).astype(f32)).astype(f32)).astype(f32)
def norm(x, g):
    x = keep(x, 50); n = x.shape[-1]; lanes = np.zeros(x.shape[:-1]+(256,), f32)
    for c in range(0, n, 256):
        w = min(256, n-c); s = x[..., c:c+w]; lanes[..., :w] = (lanes[..., :w]+(s*s).astype(f32)).astype(f32)
    s = fold(lanes); r = rsqrt(((s*f32(1.0/n)).astype(f32)+f32(EPS)).astype(f32))
    return keep(((x*r[..., None]).astype(f32)*g).astype(f32), 50)
inv = THETA**(-2*np.arange(ROT//2, dtype=np.float64)/ROT)
def rope(x, pos):
    a = pos*inv; c, s = keep(np.cos(a).astype(f32), 50), keep(np.sin(a).astype(f32), 50); hlf = ROT//2
    x1, x2 = x[:, :hlf], x[:, hlf:ROT]
    return np.concatenate([((x1*c).astype(f32)-(x2*s).astype(f32)), ((x2*c).astype(f32)+(x1*s).astype(f32))], 1).astype(f32)
def store(x):
    x = keep(x, 50); return x.astype(np.float16).astype(f32) if KV == "f16" else x
ISQ = f32(1/np.sqrt(HD))
def attend(q, Ks, Vs):
    T = len(Ks); ms, ls, os_ = [], [], []
    for k0 in range(0, T, 64):
        K, Vv = np.stack(Ks[k0:k0+64]), np.stack(Vs[k0:k0+64]); n = len(K)      # n,NKV,HD
        K = np.repeat(K, NH//NKV, 1); Vv = np.repeat(Vv, NH//NKV, 1)
        lanes = np.zeros((n, NH, 16), f32)
        for d in range(0, HD, 16): lanes = (lanes+(q[None, :, d:d+16]*K[:, :, d:d+16]).astype(f32)).astype(f32)
        s = (fold(lanes)*ISQ).astype(f32); m = s.max(0); p = exp((s-m).astype(f32))
        sl = np.zeros((NH, 64), f32); sl[:, :n] = p.T; l = fold(sl); o = np.zeros((NH, HD), f32)
        for j in range(n): o = (o+(p[j][:, None]*Vv[j]).astype(f32)).astype(f32)
        ms.append(m); ls.append(l); os_.append(keep(o, 40))
    M = np.max(np.stack(ms), 0); l = np.zeros(NH, f32); o = np.zeros((NH, HD), f32)
    for m, ll, oo in zip(ms, ls, os_):
        w = exp((m-M).astype(f32)); l = (l+(ll*w).astype(f32)).astype(f32); o = (o+(oo*w[:, None]).astype(f32)).astype(f32)
    return (o*recip(l)[:, None]).astype(f32)
def silu(x): return np.where(x < f32(-40), f32(0), (x*recip((f32(1)+exp(np.minimum(-x, f32(40)))).astype(f32))).astype(f32)).astype(f32)
class Run:
    def __init__(s): s.K = [[] for _ in range(L)]; s.V = [[] for _ in range(L)]; s.pos = 0
    def step(s, tok):
        x = (emb[0][tok].astype(f32)*emb[1][tok]).astype(f32)
        for i, w in enumerate(layers):
            qe = quant(norm(x, w["n1"]))
            q = norm(lin(w["q"], qe).reshape(NH, HD), w["qn"]); k = norm(lin(w["k"], qe).reshape(NKV, HD), w["kn"]); v = lin(w["v"], qe).reshape(NKV, HD)
            q, k = rope(q, s.pos), rope(k, s.pos); s.K[i].append(store(k)); s.V[i].append(store(v))
            x = (x+lin(w["o"], quant(attend(keep(q, 50), s.K[i], s.V[i]).reshape(-1)))).astype(f32)
            qe = quant(norm(x, w["n2"]))
            hmid = (keep(silu(lin(w["g"], qe)), 50)*keep(lin(w["u"], qe), 50)).astype(f32)
            x = (x+lin(w["d"], quant(hmid))).astype(f32)
        s.pos += 1
        q, e = quant(norm(x, fn)); return ((head[0]@q).astype(f32)*(head[1]*f32(2.0**(e-QQ))).astype(f32)).astype(f32)
d = json.load(open(sys.argv[2])); tot = bad = free = 0; bits = []
for t in d["trajectories"]:
    r = Run(); lg = None
    for tok in t["prompt_ids"]: lg = r.step(tok)
    mism = []; bits.append([])
    for i, want in enumerate(t["ids"]):
        got = int(np.argmax(lg)); tot += 1; bits[-1].append(hashlib.sha256(lg.astype('<f4').tobytes()).hexdigest()[:16])
        if got != want: mism.append((i, got, want, t["margins"][i]))
        lg = r.step(want)
    bad += len(mism); free += not mism
    if mism: print(t["prompt_text"][:40].replace("\n", " "), mism)
print(f"P={P} kv={KV}: {tot} positions, {bad} differ, {free} of {len(d['trajectories'])} prompts identical")
if len(sys.argv) > 5:
    json.dump({"made_by": "testdata/numerics/sim.py", "activations": {3: "exact", 2: "int16", 1: "int8"}[P], "kv": KV, "sha256": bits}, open(sys.argv[5], "w"), indent=0)
