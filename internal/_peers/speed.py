#!/usr/bin/env python3
"""Measure nrun beside llama.cpp and the publisher's algorithm, and write docs/performance.md.

usage: speed.py [--models 0.6b,8b] [--rounds N] [--threads 1,2] [--depth N] [--prompt N] [--tokens N] [--llama-bench PROGRAM] [--cpu-only | --clock-only] [--quick] [--print]
       speed.py --build llama-server,llama-bench

All that is measured takes turns, round by round, in one run:
  - nrun bench, activations exact and int8, which measures the memory too;
  - nrun generate, the same by processor time of one thread: what counts where other
    programs run at the same time;
  - llama-bench of an unchanged llama.cpp, built from the source package of
    llama-cpp-python (PyPI, pinned in fork-patches/check.py) for this processor,
    on a model of the same geometry: TQ2_0 linears, Q8_0 embeddings and head;
  - one thread's dot products with 4096 columns from memory: ours, and FV5 as masked
    float sums, the publisher's way on the CPU (fork-patches/test/bench.cpp).
The models are synthetic: random weights of the published geometries.
Needs go, cmake, a C and C++ compiler and pip; the first run needs the network and
builds llama.cpp (20 minutes of one core). Files go to dist/speed. --build builds
programs of llama.cpp into dist/speed/build/bin and ends.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "dist/speed"
DOC = ROOT / "docs/performance.md"
BEGIN, END = "<!-- written by internal/_peers/speed.py -->\n", "<!-- end -->\n"

# tokens of a prompt and of an answer; by processor time
LENGTHS = {"0.6b": (512, 64), "8b": (128, 16)}
CPU_LENGTHS = {"0.6b": (256, 64), "8b": (64, 8)}


def run(*args, **kwargs):
    args = [str(a) for a in args]
    print("+", " ".join(args), file=sys.stderr, flush=True)
    return subprocess.run(args, check=True, text=True, **kwargs)


def fork_check():
    """fork-patches/check.py as a module: it knows where llama.cpp comes from."""
    spec = importlib.util.spec_from_file_location("check", ROOT / "fork-patches/check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launcher():
    if not shutil.which("ccache"):
        return []
    return ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]


def llama(check, target):
    """Builds a program of llama.cpp from the unchanged source."""
    program = WORK / "build/bin" / target
    if program.exists():
        return program
    package = ROOT / "dist/fork-check"
    package.mkdir(parents=True, exist_ok=True)
    check.source(package)  # brings the source package
    tree = WORK / "llama.cpp"
    if not tree.exists():
        fresh = WORK / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(package / f"{check.PACKAGE}-{check.VERSION}.tar.gz") as archive:
            for member in archive:
                name = member.name.removeprefix(check.TREE)
                if member.isfile() and name != member.name and ".." not in name:
                    (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                    (fresh / name).write_bytes(archive.extractfile(member).read())
        fresh.rename(tree)
    run("cmake", "-S", HERE / "llama", "-B", WORK / "build", f"-DLLAMA_CPP={tree}", *launcher(), stdout=sys.stderr)
    run("nice", "cmake", "--build", WORK / "build", "--parallel", os.cpu_count(), "--target", target, stdout=sys.stderr)
    return program


def masked_floats(check):
    """Builds fork-patches/test/bench.cpp, in the patched tree of make fork-check."""
    work = ROOT / "dist/fork-check"
    program = work / "build-43/bench"
    if not program.exists():
        work.mkdir(parents=True, exist_ok=True)
        tree = check.source(work)
        run("cmake", "-S", ROOT / "fork-patches/test", "-B", work / "build-43", f"-DLLAMA_CPP={tree}", *launcher(), stdout=sys.stderr)
        run("nice", "cmake", "--build", work / "build-43", "--parallel", os.cpu_count(), "--target", "bench", stdout=sys.stderr)
    return program


def model_files(name):
    ours, theirs = ROOT / f"dist/synth-{name}-random.bin", ROOT / f"dist/peer-{name}.gguf"
    for path, flag in ((ours, "-random"), (theirs, "-gguf")):
        if not path.exists():
            run("go", "run", "./internal/synth", flag, "-model", name, "-o", path, cwd=ROOT, stdout=sys.stderr)
    return ours, theirs


class Figures:
    """Samples by key, in the order of their first."""

    def __init__(self):
        self.samples = {}

    def add(self, key, value):
        self.samples.setdefault(key, []).append(value)

    def median(self, key):
        return statistics.median(self.samples[key])

    def text(self, key, form="{:.1f}"):
        if key not in self.samples:
            return "-"
        s = self.samples[key]
        return f"{form.format(statistics.median(s))} ({form.format(min(s))}-{form.format(max(s))})"

    def ratio(self, a, b):
        """Median and range of the ratios of the rounds."""
        if a not in self.samples or b not in self.samples:
            return "-"
        s = [x / y for x, y in zip(self.samples[a], self.samples[b])]
        return f"{statistics.median(s):.2f} ({min(s):.2f}-{max(s):.2f})"


class Report:
    def __init__(self, args, programs):
        self.args, self.programs, self.f = args, programs, Figures()
        self.kernels = json.loads(run(programs["nrun"], "plan", "--json", stdout=subprocess.PIPE).stdout)["kernels"]
        self.commands = []
        self.token, self.kv, self.peer = {}, {}, {}  # bytes, by model

    def command(self, *args):
        """Runs a measurement and keeps its command line, once, as one would type it."""
        shown = re.sub(r"1000,[0-9,]+", "1000,1007,...", " ".join(map(str, args))).replace(str(ROOT) + "/", "")
        if shown not in self.commands:
            self.commands.append(shown)
        return run(*args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT).stdout

    def ours(self, model, path, threads, depth=0):
        prompt, tokens = LENGTHS[model]
        extra = ["--depth", f"0,{depth}", "--prefill", "0"] if depth else ["--prefill", prompt]
        out = json.loads(self.command(self.programs["nrun"], "bench", path, "--json", "-q", "--rounds", 1, "--tokens", tokens,
                                      "--threads", threads, "--activations", "exact" if depth else "exact,int8", *extra))
        for sample in out["bandwidth"][0]["bytes_per_second"]["samples"]:
            self.f.add(("memory", threads), sample / 1e9)
        for r in out["results"]:
            key = (model, r["test"], r["activations"], threads, r["depth"]) if depth else (model, r["test"], r["activations"], threads)
            self.f.add(key, r["tokens_per_second"]["median"])
            if r["test"] == "decode":
                self.f.add(("bytes", *key), r["weight_bytes_per_token"] + r["kv_bytes_per_token"])
                self.f.add(("share", *key), 100 * r["share_of_bandwidth"])

    def theirs(self, model, path, threads):
        prompt, tokens = LENGTHS[model]
        out = json.loads(self.command(self.programs["llama-bench"], "-m", path, "-t", threads, "-p", prompt, "-n", tokens, "-r", 1, "-o", "json"))
        for r in out:
            self.f.add((model, "prefill" if r["n_prompt"] else "decode", "llama", threads), r["avg_ts"])

    def spent(self, *args):
        """Processor seconds of a program, with what it does beside."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.command(*args)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def processor(self, model, ours, theirs):
        """Processor time of one thread: the difference of two runs, so that loading does not count."""
        prompt, tokens = CPU_LENGTHS[model]
        ids = lambda n: ",".join(str(1000 + 7 * i) for i in range(n))
        nrun = [self.programs["nrun"], "generate", ours, "-q", "--ignore-eos", "-t", 1]
        llama = [self.programs["llama-bench"], "-m", theirs, "-t", 1, "-r", 1, "--no-warmup", "-o", "json"]
        # A prompt of p tokens and n steps. nrun makes an answer's first token from the prompt.
        runs = {a: lambda p, n, a=a: self.spent(*nrun, "--activations", a, "--ids", ids(p), "-n", n + 1) for a in ("exact", "int8")}
        runs["llama"] = lambda p, n: self.spent(*llama, "-p", p if n == 0 else 0, "-n", n)
        for who, spent in runs.items():
            self.memory()
            self.f.add((model, "decode", who, "cpu"), tokens / (spent(1, 1 + tokens) - spent(1, 1)))
            self.f.add((model, "prefill", who, "cpu"), prompt / (spent(1 + prompt, 0) - spent(1, 0)))

    def memory(self):
        """What one thread reads in a second of processor time."""
        out = self.command(self.programs["membw.test"], "-test.run", "^$", "-test.benchtime", "5x", "-test.bench", "^BenchmarkReadThread$")
        self.f.add("read", float(re.search(r"([0-9.]+) GB/cpu-s", out).group(1)))

    def dots(self):
        out = self.command(self.programs["masked"], 256, 1)
        for name, key in (("fv5, masked floats", "masked"), ("tq2_0", "tq2")):
            self.f.add(("dot", key), float(re.search(rf"^ *{name} +([0-9.]+) Gw/s", out, re.M).group(1)))
        out = self.command(self.programs["cpu.test"], "-test.run", "^$", "-test.benchtime", "3x", "-test.bench", f"^BenchmarkDotThread$/^{self.kernels}$")
        for planes, rate in re.findall(r"/P=(\d)\S*\s.*?([0-9.]+) Gweights/cpu-s", out):
            self.f.add(("dot", int(planes)), float(rate))


def measure(args):
    WORK.mkdir(parents=True, exist_ok=True)
    check = fork_check()
    programs = {"llama-bench": args.llama_bench or llama(check, "llama-bench"), "nrun": ROOT / "bin/nrun"}
    run("make", "-s", "build", cwd=ROOT, stdout=sys.stderr)
    if not args.clock_only:
        programs |= {"masked": masked_floats(check), "cpu.test": WORK / "cpu.test", "membw.test": WORK / "membw.test"}
        for package in ("cpu", "internal/membw"):
            program = programs[pathlib.PurePath(package).name + ".test"]
            run("go", "test", "-c", "-o", program, "./" + package, cwd=ROOT, stdout=sys.stderr)
    files = {m: model_files(m) for m in args.models}
    for m in LENGTHS:
        LENGTHS[m] = (args.prompt or LENGTHS[m][0], args.tokens or LENGTHS[m][1])
        if args.quick:
            LENGTHS[m] = CPU_LENGTHS[m] = (32, 8)
    r = Report(args, programs)
    for m, (ours, theirs) in files.items():
        out = json.loads(run(programs["nrun"], "bench", ours, "--json", "-q", "--rounds", 1, "--prefill", 0, "--tokens", 1, stdout=subprocess.PIPE).stdout)
        r.token[m], r.kv[m] = out["results"][0]["weight_bytes_per_token"], out["kv_bytes_per_token"]
        # an input table of its own is not read
        r.peer[m] = theirs.stat().st_size - (151936 * 4096 * 34 // 32 if m == "8b" else 0)
    loads = []
    for i in range(args.rounds):
        for model in args.models:
            if not args.clock_only:
                loads.append(os.getloadavg()[0])
                r.processor(model, *files[model])
            for threads in [] if args.cpu_only else args.threads:
                loads.append(os.getloadavg()[0])
                turns = [lambda: r.ours(model, files[model][0], threads), lambda: r.theirs(model, files[model][1], threads)]
                for turn in turns if i % 2 == 0 else turns[::-1]:
                    turn()
        if not args.clock_only:
            r.dots()
        (WORK / "speed.json").write_text(json.dumps([[k, v] for k, v in r.f.samples.items()]))
        print(f"round {i + 1} of {args.rounds} done, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    if args.depth and not args.cpu_only:
        for _ in range(args.rounds if not args.quick else 1):
            r.ours(args.models[0], files[args.models[0]][0], max(args.threads), args.depth)
            loads.append(os.getloadavg()[0])
        (WORK / "speed.json").write_text(json.dumps([[k, v] for k, v in r.f.samples.items()]))
    return r, loads


def report(r, loads):
    f, args = r.f, r.args
    lines = []
    row = lambda *cells: lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    info = json.loads(run(r.programs["nrun"], "info", "--json", stdout=subprocess.PIPE).stdout)
    cpu = info["cpu"]
    wide = [x for x in ("AVX2", "AVX512F", "AVX512VNNI", "GFNI", "AMXINT8") if x in cpu["features"]]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()
    lines += [f"{cpu['model']}, {cpu['physical']} cores, {' '.join(wide)}; load average {min(loads):.1f} to {max(loads):.1f} during the run, "
              f"{args.rounds} rounds; nrun at {commit}, kernels {r.kernels}; {datetime.date.today()}. Medians, in brackets the range over the rounds.", ""]

    def versus(title, lengths, columns):
        lines.extend([title, ""])
        row("model", "test", "threads", "exact", "int8", "llama.cpp TQ2_0", "exact : llama.cpp", "int8 : llama.cpp")
        row("---", "---", *["--:"] * 6)
        for m in args.models:
            for test, n in zip(("prefill", "decode"), lengths[m]):
                for t in columns:
                    key = lambda who: (m, test, who, t)
                    row(m, f"{test} {n}", 1 if t == "cpu" else t, *(f.text(key(who)) for who in ("exact", "int8", "llama")),
                        f.ratio(key("exact"), key("llama")), f.ratio(key("int8"), key("llama")))
        lines.append("")

    if not args.clock_only:
        versus("Tokens per second of processor time, one thread:", CPU_LENGTHS, ["cpu"])
        row("model", "bytes a token", "memory is read at, GB per second of processor time", "exact, % of it", "int8, % of it", "llama.cpp's own bytes, % of it")
        row("---", *["--:"] * 5)
        for m in args.models:
            gb = lambda who, size: f"{100 * f.median((m, 'decode', who, 'cpu')) * size / 1e9 / f.median('read'):.0f}"
            size = r.token[m] + r.kv[m] * CPU_LENGTHS[m][1] / 2
            row(m, f"{size:,.0f}", f.text("read"), gb("exact", size), gb("int8", size), gb("llama", r.peer[m] + r.kv[m] * CPU_LENGTHS[m][1] / 2))
        lines.append("")
    if not args.cpu_only:
        versus("Tokens per second:", LENGTHS, args.threads)
        row("model", "threads", "memory is read at, GB/s", "bytes a token", "exact, % of memory", "int8, % of memory")
        row("---", *["--:"] * 5)
        for m in args.models:
            for t in args.threads:
                row(m, t, f.text(("memory", t)), f"{int(f.median(('bytes', m, 'decode', 'exact', t))):,}",
                    *(f.text(("share", m, "decode", a, t), "{:.0f}") for a in ("exact", "int8")))
        lines.append("")
    if args.depth and not args.cpu_only:
        m, t = args.models[0], max(args.threads)
        near, far = (m, "decode", "exact", t, 0), (m, "decode", "exact", t, args.depth)
        grown = f.median(("bytes", *far)) / f.median(("bytes", *near))
        lines += [f"Decode of {m}, exact, {t} threads: {f.text(near)} tokens/s at depth 0 and {f.text(far)} at depth {args.depth:,}: "
                  f"{f.ratio(near, far)} times the time for {grown:.2f} times the bytes.", ""]
    if not args.clock_only:
        row("dot products of one thread, 4096 columns, from memory", "Gweights per second of processor time", "times masked floats")
        row("---", "--:", "--:")
        for name, key in (("ours, exact (3 digits)", 3), ("ours, int16 (2)", 2), ("ours, int8 (1)", 1), ("llama.cpp TQ2_0", "tq2"), ("FV5 as masked float sums", "masked")):
            row(name, f.text(("dot", key)), f.ratio(("dot", key), ("dot", "masked")))
        lines.append("")
    lines += ["```"] + r.commands + ["```", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    numbers = lambda s: [int(n) for n in s.split(",")]
    parser.add_argument("--models", default=["0.6b"], type=lambda s: s.split(","))
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--threads", default=sorted({1, os.cpu_count()}), type=numbers)
    parser.add_argument("--depth", default=8192, type=int, help="0: none")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt, by the clock (512; 8b: 128)")
    parser.add_argument("--tokens", type=int, help="tokens of an answer, by the clock (64; 8b: 16)")
    parser.add_argument("--llama-bench", type=pathlib.Path)
    parser.add_argument("--cpu-only", action="store_true", help="processor time alone: for a busy machine")
    parser.add_argument("--clock-only", action="store_true", help="rates by the clock alone: for a quiet machine and little time")
    parser.add_argument("--build", type=lambda s: s.split(","), help="build these programs of llama.cpp, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="a few tokens of each, to try the script")
    parser.add_argument("--print", action="store_true", help="to standard output, not into the page")
    args = parser.parse_args()
    if args.build:
        WORK.mkdir(parents=True, exist_ok=True)
        for target in args.build:
            print(llama(fork_check(), target))
        return
    text = report(*measure(args))
    page = DOC.read_text() if DOC.exists() else BEGIN + END
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    if args.print:
        print(text)
    else:
        DOC.write_text(before + BEGIN + text + END + after)


if __name__ == "__main__":
    main()
