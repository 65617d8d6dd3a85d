#!/usr/bin/env python3
"""Our engine beside its peers, on the same weights, in one run: sets them up, measures in alternation, prints the tables.

    bench/peers/run.py            everything; see --help and README.md

Writes FOLDER/peers.json and FOLDER/peers.md and prints the latter. Exit status 0; 1 if our engine or every peer failed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

import engines
import measure
import report
import setup_peers
from engines import Engine, Plan

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "pocket": "Pocket shape, random weights, 302.8 M",
    "smollm2": "SmolLM2-135M-Instruct",
    "gemma3": "Gemma 3 270M",
}
PULLED = {"smollm2": "smollm2-135m", "gemma3": "gemma3-270m"}
# What each engine is told, so that all use the same instructions: {} leaves them free.
ISAS = {
    "best": {},
    "avx512": {"POCKETLM_CPU": "avx512vnni", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "avx2": {"POCKETLM_CPU": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
QUICK = Plan(prompts=(512,), decode=32, depths=(4096,), depth_tokens=8, long_prompt=2048)
TINY = Plan(prompts=(32,), decode=4, depths=(600,), depth_tokens=2, long_prompt=64, memory=(64, 4))


def parse_args(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="Example: bench/peers/run.py --quick --models pocket --with ik",
    )
    parser.add_argument("--folder", default=str(REPOSITORY / "build-peers"), help="for peers, models and results")
    parser.add_argument("--pocketlm", default=str(REPOSITORY / "build" / "pocketlm"), help="our program")
    parser.add_argument("--models", default="pocket,smollm2,gemma3", help="of pocket, smollm2, gemma3")
    parser.add_argument("--threads", default="2,1", help="numbers of threads (default 2,1)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds, after one of warm-up (default 5)")
    parser.add_argument("--isa", choices=list(ISAS), default="best", help="hold every engine to AVX2 or AVX-512")
    parser.add_argument("--with", dest="extra", default="", help="also: openvino, ik (as in --with openvino,ik)")
    parser.add_argument("--mnn-model", help="an MNN model folder of the Pocket shape; adds MNN")
    parser.add_argument("--quick", action="store_true", help="two rounds of short lengths, two threads")
    parser.add_argument("--tiny", action="store_true", help="one round of a few tokens: does everything run?")
    parser.add_argument("--no-depth", action="store_true", help="leave out long contexts")
    parser.add_argument("--only", default="", help="only engines whose label holds one of these words (comma list)")
    parser.add_argument("--setup-only", action="store_true", help="download and build, measure nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="compilers at once")
    args = parser.parse_args(argv)
    args.models = [name for name in args.models.split(",") if name]
    args.extra = {name for name in args.extra.split(",") if name}
    unknown = [name for name in args.models if name not in MODELS] + sorted(args.extra - {"openvino", "ik"})
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    try:
        args.threads = [int(count) for count in args.threads.split(",")]
    except ValueError:
        parser.error("--threads: expected numbers with commas between them")
    if min(args.threads) < 1 or args.rounds < 1 or args.jobs < 1:
        parser.error("--threads, --rounds and --jobs: expected numbers from 1 on")
    args.plan = TINY if args.tiny else QUICK if args.quick else Plan()
    if args.quick or args.tiny:
        args.rounds, args.threads = (1 if args.tiny else 2), args.threads[:1]
    return args


# Models


def program_output(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise setup_peers.SetupError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def make_file(path, command):
    """Runs command + [-o path] unless the file is there."""
    if not path.exists():
        print(f"  making {path.name}", flush=True)
        program_output([*command, "-o", str(path)])
    return str(path)


def cached_model(name):
    home = os.environ.get("POCKETLM_HOME") or pathlib.Path.home() / ".cache" / "pocketlm"
    return pathlib.Path(home) / f"{name}.gguf"


def model_files(program, name, folder):
    """{"ours": .plm, "gguf": {label: file}}: the same weights for us and for llama.cpp."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = folder / f"{name}.plm"
    if name == "pocket":
        make_file(ours, [program, "new", "--config", "pocket-0.3b", "--random-seed", "0"])
        types = {"Q4_0": "q4_0", "Q4_1": "q4_1"}
        return {
            "ours": str(ours),
            "gguf": {
                label: make_file(folder / f"pocket-{kind}.gguf", [program, "convert", str(ours), "--type", kind])
                for label, kind in types.items()
            },
        }
    pulled = cached_model(PULLED[name])
    if not pulled.exists():
        print(f"  pulling {PULLED[name]}", flush=True)
        program_output([program, "pull", PULLED[name]])
    kind = ["--type", "int4"] if name == "gemma3" else []
    make_file(ours, [program, "convert", str(pulled), *kind])
    return {"ours": str(ours), "gguf": {"the same GGUF": str(pulled)}}


# Engines


def working_variants(args, root, sample, failures):
    """{name: programs} of llama.cpp's builds that survive a few tokens of `sample` on this CPU."""
    variants = setup_peers.ggml_variants(setup_peers.cpu_flags(), setup_peers.machine())
    working = {}
    for name in setup_peers.chosen_variants(variants, args.isa):
        options = variants[name]
        programs = setup_peers.llama(root, name, options, args.jobs)
        try:
            command = [programs["llama-bench"], "-m", sample, "-p", "32", "-n", "2", "-r", "1", "-t", "2", "-fa", "1"]
            measure.run_once(command, timeout_s=300)
            working[name] = programs
        except measure.RunError as error:
            failures.append(f"llama.cpp ({name}) does not run here: {error}".replace("\n", " "))
    return working


def llama_engines(args, root, files, failures):
    sample = next(iter(files[args.models[0]]["gguf"].values()))
    found = []
    for variant, programs in working_variants(args, root, sample, failures).items():
        found += peer_engines("llama.cpp", f"llama.cpp {variant}", programs, files)
    if "ik" in args.extra:
        found += peer_engines("ik_llama.cpp", "ik_llama.cpp", setup_peers.ik_llama(root, args.isa, args.jobs), files, ("-rtr", "1"))
    return found


def peer_engines(name, prefix, programs, files, extra=()):
    """Each GGUF with an f16 and an int8 cache. Long contexts only of the Pocket shape."""
    short = ("speed", "startup", "memory")
    return [
        Engine(name, f"{prefix} {label}, KV {'q8_0' if kv == 'int8' else kv}", model, path, kv, programs, extra=extra,
               tasks=short + ("depth", "long") if (model, label) == ("pocket", "Q4_0") else short)
        for model, entry in files.items()
        for label, path in entry["gguf"].items()
        for kv in ("f16", "int8")
    ]


def our_engines(args, files):
    programs = {"pocketlm": args.pocketlm}
    return [
        Engine("pocketlm", f"PocketLM, KV {kv}", model, entry["ours"], kv, programs, ISAS[args.isa],
               tasks=("speed", "depth", "long") if model == "pocket" else ("speed",))
        for model, entry in files.items()
        for kv in ("int8", "f16")
    ]


def python_engines(args, root, files):
    found = []
    if "openvino" in args.extra and "pocket" in files:
        python = setup_peers.environment(root, "openvino")
        path = setup_peers.openvino_model(root, python)
        found.append(Engine("openvino", "OpenVINO GenAI int4 g64, KV u8", "pocket", path, "int8", {"python": python}, ISAS[args.isa]))
    if args.mnn_model and "pocket" in files:
        python = setup_peers.environment(root, "mnn")
        config = str(pathlib.Path(args.mnn_model).resolve() / "config.json")
        found.append(Engine("mnn", "MNN", "pocket", config, "", {"python": python}))
    return found


def set_up(args, root, failures):
    """Every engine that runs here: ours first."""
    print("models", flush=True)
    files = {name: model_files(args.pocketlm, name, root / "models") for name in args.models}
    print("peers", flush=True)
    found = our_engines(args, files)
    for make in (lambda: llama_engines(args, root, files, failures), lambda: python_engines(args, root, files)):
        try:
            found += make()
        except setup_peers.SetupError as error:
            failures.append(f"set-up: {error}")
    words = [word for word in args.only.split(",") if word]
    return [engine for engine in found if not words or any(word in engine.label for word in words)]


# Measuring


class Harness:
    """Runs tasks and keeps the records; an engine that failed at a task is not asked again for it."""

    def __init__(self, args, failures):
        self._args, self._failures = args, failures
        self._failed = set()
        self.records = []

    def run(self, engine, task, threads, number):
        """One run of a task; number 0 is warm-up and is not counted."""
        if (engine.model, engine.label, task, threads) in self._failed:
            return
        for command, parse in engine.commands(task, self._args.plan, threads):
            print(f"  {task:8} {threads} thr  round {number}  {engine.model}: {engine.label}", flush=True)
            try:
                run = measure.run_undisturbed(command, engine.env, tries=1 if number == 0 or self._args.tiny else 3)
                metrics = parse(run)
            except (measure.RunError, ValueError, KeyError) as error:
                self._failed.add((engine.model, engine.label, task, threads))
                self._failures.append(f"{engine.model}: {engine.label}, {task}: {error!s}".replace("\n", " "))
                print(f"  failed: {error}", flush=True)
                return
            if number == 0:
                continue
            self.records.append(
                {
                    "model": engine.model,
                    "engine": engine.label,
                    "threads": threads,
                    "task": task,
                    "round": number,
                    "wall_s": run.wall_s,
                    "other_cores": run.other_cores,
                    "disturbed": run.disturbed,
                    "metrics": metrics,
                }
            )

    def run_all(self, found):
        args = self._args
        for model in args.models:
            mine = [engine for engine in found if engine.model == model]
            for threads in args.threads:
                for number in range(0 if not args.tiny else 1, args.rounds + 1):
                    for engine in mine:
                        self.run(engine, "speed", threads, number)
                        self.run(engine, "startup", threads, number)
                for engine in mine:
                    self.run(engine, "memory", threads, 1)
            if not args.no_depth:
                for task in ("depth", "long"):
                    for engine in mine:
                        self.run(engine, task, args.threads[0], 1)


def machine_facts(args, found):
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), cpu)
    except OSError:
        pass
    interesting = sorted(
        flag for flag in setup_peers.cpu_flags() if flag.startswith(("avx", "amx", "fma", "f16c", "asimd", "i8mm", "sve"))
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{cpu}, {os.cpu_count()} CPUs",
        "CPU flags": " ".join(interesting),
        "kernel": f"{platform.system()} {platform.release()}",
        "ISA": "the best of each engine" if args.isa == "best" else f"every engine held to {args.isa}",
        "pocketlm": program_output([args.pocketlm, "--version"]).strip(),
        "peers": ", ".join(peer_versions(found)),
        "compiler": program_output([os.environ.get("CXX", "c++"), "--version"]).splitlines()[0],
        "rounds": f"{args.rounds} after one of warm-up, engines in turn; long contexts once",
    }


def peer_versions(found):
    names = {engine.name for engine in found}
    versions = []
    if "llama.cpp" in names:
        versions.append(f"llama.cpp of {setup_peers.requirement('llama-cpp-python').split()[0]}")
    if "ik_llama.cpp" in names:
        versions.append(f"ik_llama.cpp of {setup_peers.requirement('ik-llama-cpp-python').split()[0]}")
    for name in sorted(names & {"openvino", "mnn"}):
        lines = (setup_peers.HERE / f"requirements-{name}.txt").read_text().splitlines()
        versions.append(next(line for line in lines if line.startswith(("openvino-genai==", "mnn=="))))
    return versions


def main(argv=None):
    args = parse_args(argv)
    root = pathlib.Path(args.folder).resolve()
    root.mkdir(parents=True, exist_ok=True)
    failures = []
    try:
        found = set_up(args, root, failures)
        facts = machine_facts(args, found)
    except (setup_peers.SetupError, OSError) as error:
        sys.exit(f"bench-peers: {error}")
    for failure in failures:
        print(f"bench-peers: {failure}", file=sys.stderr)
    if args.setup_only:
        return 1 if failures else 0
    harness = Harness(args, failures)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        harness.run_all(found)
    except KeyboardInterrupt:
        failures.append("interrupted: the tables hold what was measured until then")
    result = {
        "facts": facts,
        "builds": setup_peers.ggml_variants(setup_peers.cpu_flags(), setup_peers.machine()),
        "models": {name: MODELS[name] for name in args.models},
        "engines": {
            engine.label: {"ours": engine.ours, "kv": engine.kv} for engine in found
        },
        "file_bytes": {engine.path: engines.file_bytes(engine.path) for engine in found},
        "records": harness.records,
        "failures": failures,
    }
    result["summary"] = [
        {"model": model, "threads": threads, "engine": label, **summary}
        for (model, threads, label), summary in report.summarize(harness.records).items()
    ]
    text = report.markdown(result, args.plan)
    (root / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    (root / "peers.md").write_text(text)
    print(f"\n{text}")
    measured = {result["engines"][record["engine"]]["ours"] for record in harness.records}
    return 0 if measured == {True, False} else 1


if __name__ == "__main__":
    sys.exit(main())
