#!/usr/bin/env python3
"""Build a llama.cpp with FV5 and prove that it decodes as we do.

usage: check.py --model FILE [--work DIR] [--jobs N] [--id-base N] [--bench]

Takes llama.cpp's source from the source package of llama-cpp-python (PyPI, pinned
by version and digest), applies the edits, and then
  1. runs test/dot_test.c for every instruction set that this machine can run
     (and, where a cross compiler and qemu are, for ARM), and test/cuda_host.cpp,
     the CUDA kernels thread by thread on the CPU,
  2. builds libllama with the CPU backend,
  3. runs test/backend_test.cpp: the operations through ggml's graphs,
  4. reads MODEL, the story model's FV5 file, with the patched gguf-py,
  5. decodes it and compares every token with testdata/story/trajectories.json,
  6. shows the loader files whose id 43 is FV5 and is not.
Exit status: 0 all equal, 1 something failed, 3 a token differs.
Needs cmake, a C and C++ compiler and pip; the first run needs the network.
"""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGE = "llama_cpp_python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
TREE = f"{PACKAGE}-{VERSION}/vendor/llama.cpp/"
WANTED = ("CMakeLists.txt", "LICENSE", "cmake/", "ggml/", "gguf-py/", "include/", "src/", "vendor/",
          "common/", "licenses/", "scripts/", "app/")


class Failure(Exception):
    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def run(*args, **kwargs):
    args = [str(a) for a in args]
    print("+", " ".join(a if "\n" not in a else "..." for a in args), flush=True)
    if subprocess.run(args, **kwargs).returncode != 0:
        raise Failure(f"{args[0]} failed")


def source(work):
    """Returns the patched tree, made anew when the edits or files have changed."""
    sdist = work / f"{PACKAGE}-{VERSION}.tar.gz"
    if not sdist.exists():
        run(sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps",
            "-d", work, f"{PACKAGE.replace('_', '-')}=={VERSION}")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Failure(f"{sdist}: sha256 {digest}, want {SHA256}")

    ours = hashlib.sha256()
    for path in sorted([HERE / "apply.py", *(HERE / "edits").glob("*"), *(HERE / "files").rglob("*")]):
        if path.is_file():
            ours.update(path.read_bytes())
    tree, stamp = work / "llama.cpp", work / "patched.sha256"
    if not stamp.exists() or stamp.read_text() != ours.hexdigest():
        fresh = work / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(sdist) as archive:
            for member in archive:
                name = member.name.removeprefix(TREE)
                if member.isfile() and name != member.name and name.startswith(WANTED) and ".." not in name:
                    target = fresh / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())
        run(sys.executable, HERE / "apply.py", fresh)
        update(fresh, tree)
        stamp.write_text(ours.hexdigest())
    return tree


def update(fresh, tree):
    """Makes tree equal to fresh, leaving equal files and their times alone for the build."""
    for path in fresh.rglob("*"):
        target = tree / path.relative_to(fresh)
        if path.is_file() and not (target.exists() and target.read_bytes() == path.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in list(tree.rglob("*")):
        if path.is_file() and not (fresh / path.relative_to(tree)).exists():
            path.unlink()
    shutil.rmtree(fresh)


# (name, compiler, flags, features that /proc/cpuinfo must name, emulator)
NATIVE = {
    "x86_64": [
        ("generic", "cc", ["-DFV5_GENERIC"], [], []),
        ("avx2", "cc", ["-mavx2", "-mfma"], ["avx2", "fma"], []),
        ("avxvnni", "cc", ["-mavx2", "-mfma", "-mavxvnni"], ["avx_vnni"], []),
        ("avx512bw", "cc", ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw"], ["avx512bw"], []),
        ("avx512vnni", "cc", ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vnni"], ["avx512_vnni"], []),
    ],
    "aarch64": [
        ("generic", "cc", ["-DFV5_GENERIC"], [], []),
        ("neon", "cc", [], ["asimd"], []),
        ("neon dotprod", "cc", ["-march=armv8.2-a+dotprod"], ["asimddp"], []),
    ],
}
ARM = ["aarch64-linux-gnu-gcc", "qemu-aarch64-static"]
EMULATED = [("neon", ARM[0], ["-static"], [], ARM[1:]),
            ("neon dotprod", ARM[0], ["-static", "-march=armv8.2-a+dotprod"], [], ARM[1:])]


def dot_tests(work, vectors):
    """Runs test/dot_test.c once for every instruction set; skips aloud."""
    text = work / "vectors.txt"
    with text.open("w") as out:
        for v in json.loads(vectors.read_text())["vectors"]:
            print(v["name"], v["cols"], repr(v["dot_exact"]), v["block_hex"], *v["codes"], *map(repr, v["x"]), file=out)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    info = pathlib.Path("/proc/cpuinfo")
    features = set(info.read_text().split()) if info.exists() else None
    builds = NATIVE.get(machine, NATIVE["x86_64"][:1])
    if machine != "aarch64":
        builds = builds + EMULATED
    src = HERE / "files/ggml/src"
    for name, compiler, flags, needs, emulator in builds:
        missing = [f for f in needs if features is not None and f not in features]
        missing += [p for p in [compiler, *emulator] if not shutil.which(p)]
        if missing:
            print(f"SKIP dot_test {name}: this machine lacks {', '.join(missing)}")
            continue
        program = work / ("dot_test_" + name.replace(" ", "_"))
        sanitize = [] if emulator else ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        run(compiler, "-g", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", *sanitize, *flags,
            "-I", src, "-I", src / "ggml-cpu", HERE / "test/dot_test.c", src / "ggml-fv5.c", src / "ggml-cpu/fv5.c",
            "-o", program, "-lm")
        run(*emulator, program, text)


def cuda_host(work):
    src = HERE / "files/ggml/src"
    dequantize, program = work / "ggml-fv5.o", work / "cuda_host"
    run("cc", "-std=c11", "-O2", "-c", src / "ggml-fv5.c", "-o", dequantize)
    run("c++", "-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-fsanitize=address,undefined",
        "-I", src, HERE / "test/cuda_host.cpp", dequantize, "-o", program)
    run(program)


def build(work, tree, jobs, id_base):
    out = work / f"build-{id_base}"
    cmake = ["cmake", "-S", HERE / "test", "-B", out, f"-DLLAMA_CPP={tree}", f"-DGGML_FV5_ID_BASE={id_base}"]
    if shutil.which("ccache"):
        cmake += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    run(*cmake, stdout=subprocess.DEVNULL)
    run("cmake", "--build", out, "--parallel", jobs, "--target", "greedy", "backend_test", "bench")
    return out


def python_reader(tree, model):
    lacks = [name for name in ("numpy", "yaml", "tqdm") if importlib.util.find_spec(name) is None]
    if lacks:
        print(f"SKIP gguf-py: this python lacks {', '.join(lacks)} (pip install numpy pyyaml tqdm)")
        return
    run(sys.executable, "-c", """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from gguf import GGUFReader, GGMLQuantizationType, quants
kinds = {}
for t in GGUFReader(sys.argv[2]).tensors:
    w = quants.dequantize(t.data, t.tensor_type)
    assert w.shape == tuple(int(n) for n in reversed(t.shape)) and np.isfinite(w).all(), t.name
    if t.tensor_type == GGMLQuantizationType.FV5:
        assert all(len(np.unique(np.abs(row))) <= 3 for row in w), t.name
    kinds[t.tensor_type.name] = kinds.get(t.tensor_type.name, 0) + 1
assert kinds.get('FV5') and kinds.get('FV5B'), kinds
print('gguf-py:', kinds)
""", tree / "gguf-py", model)


def decode(out, work, model, trajectories, threads, planes):
    """Returns the number of trajectories that differ, each told with step and margin."""
    prompts = work / "prompts.txt"
    prompts.write_text("".join(",".join(map(str, t["prompt_ids"])) + "\n" for t in trajectories))
    steps = len(trajectories[0]["ids"])
    env = dict(os.environ, GGML_FV5_PLANES=str(planes))
    result = subprocess.run([out / "greedy", model, prompts, str(steps), str(threads)],
                            env=env, stdout=subprocess.PIPE, text=True)
    lines = result.stdout.split()
    if result.returncode != 0 or len(lines) != len(trajectories):
        raise Failure(f"greedy ended with {result.returncode} after {len(lines)} of {len(trajectories)} prompts")
    differ = 0
    for number, (line, want) in enumerate(zip(lines, trajectories)):
        got = [int(i) for i in line.split(",")]
        if got != want["ids"]:
            step = next((i for i, (a, b) in enumerate(zip(got, want["ids"])) if a != b), min(len(got), steps))
            differ += 1
            print(f"  prompt {number}: step {step}: got {got[step:step + 1]}, want {want['ids'][step]}, "
                  f"margin {want['margins'][step]:.3g}")
    print(f"{planes} planes, {threads} threads: {len(lines) - differ} of {len(lines)} trajectories equal "
          f"({steps} tokens each)", flush=True)
    return differ


def with_provenance(data):
    """Returns a GGUF file's bytes with FV5's key put before its other keys."""
    key, value = b"general.quantization_provenance", b"fermion-check"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    assert len(entry) % 32 == 0  # what follows keeps its alignment
    keys = struct.unpack_from("<Q", data, 16)[0]
    return data[:16] + struct.pack("<Q", keys + 1) + entry + data[24:]


def refusals(out, work, id_base):
    """Shows the loader id 43 with and without the key, with FV5's size and another."""
    cases = ROOT / "testdata/cases"
    foreign = (cases / "a02_type43_foreign46.gguf").read_bytes()
    good = (cases / "a02_fv5_ok.gguf").read_bytes()
    # with ids moved, 43 without the key is upstream's, which has no such type today
    unnamed = "fermion-" if id_base == 43 else "'blk.0.attn_q.weight' of type 43"
    for name, data, want in (
        ("another format's 43", foreign, unnamed),
        ("another format's 43 with FV5's key", with_provenance(foreign), "offset"),
        ("FV5 without its key", good, unnamed),
        ("FV5", with_provenance(good), "key not found in model"),  # past the types; it is no whole model
    ):
        path = work / "case.gguf"
        path.write_bytes(data)
        result = subprocess.run([out / "greedy", path, work / "prompts.txt", "1", "1"],
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        first = (result.stderr.splitlines() or [""])[0]
        if result.returncode != 1 or want not in first:
            raise Failure(f"{name}: exit {result.returncode}, want 1 and a first line with {want!r}:\n{result.stderr}")
        print(f"{name}: {first}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--work", default=ROOT / "dist/fork-check", type=pathlib.Path)
    parser.add_argument("--jobs", default=os.cpu_count(), type=int)
    parser.add_argument("--id-base", default=43, type=int)
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args()
    try:
        args.work.mkdir(parents=True, exist_ok=True)
        tree = source(args.work)
        dot_tests(args.work, ROOT / "testdata/cases/a03_fv5_vectors.json")
        cuda_host(args.work)
        out = build(args.work, tree, args.jobs, args.id_base)
        run(out / "backend_test")
        python_reader(tree, args.model)
        trajectories = json.loads((ROOT / "testdata/story/trajectories.json").read_text())["trajectories"]
        differ = decode(out, args.work, args.model, trajectories, 1, 3)
        # the work is then divided otherwise; ggml's threads spin, so a busy machine is slow at this
        differ += decode(out, args.work, args.model, trajectories[:2], 2, 3)
        for planes in (2, 1):  # for information: coarser activations may fork
            decode(out, args.work, args.model, trajectories, 1, planes)
        refusals(out, args.work, args.id_base)
        if args.bench:
            run(out / "bench")
            run(out / "bench", "256", "5")
        if differ:
            raise Failure(f"{differ} trajectories differ", 3)
        print("fork-check: all tokens equal")
        return 0
    except Failure as failure:
        print(f"check.py: error: {failure}", file=sys.stderr)
        return failure.status


if __name__ == "__main__":
    sys.exit(main())
