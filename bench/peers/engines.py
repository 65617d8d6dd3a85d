"""The engines of the comparison: the command of each task, and how its output is read.

A task gives a dictionary of metrics. Names: "prefill N" and "decode N" (tok/s), "decode N @ D" (at D tokens of context),
"load_ms", "first_token_ms" (of a 16-token prompt, after loading), "peak_rss_bytes" (of 1,024 tokens in and 128 out),
"read_bandwidth_bytes_s" (ours measures it).
"""

import json
import os
import pathlib
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent


@dataclass(frozen=True)
class Plan:
    """What is measured. Lengths in tokens."""

    prompts: tuple = (512, 1024)
    decode: int = 128
    depths: tuple = (4096, 16384, 32000)
    depth_tokens: int = 32
    long_prompt: int = 16384
    memory: tuple = (1024, 128)  # tokens in and out


@dataclass(frozen=True)
class Engine:
    """One row of the tables: a program with a file and a kind of KV cache."""

    name: str  # "pocketlm", "llama.cpp", …
    label: str  # of the row, unique
    model: str  # key of the model: "pocket", "smollm2", "gemma3"
    path: str
    kv: str  # "f16" or "int8", or "" where it does not matter
    programs: dict = field(hash=False, compare=False, default_factory=dict)
    env: dict = field(hash=False, compare=False, default_factory=dict)
    extra: tuple = ()
    tasks: tuple = ("speed", "startup", "memory", "depth", "long")

    @property
    def ours(self):
        return self.name == "pocketlm"

    def commands(self, task, plan, threads):
        """[(command, parser of its output)] of a task; a parser takes a measure.Run and gives metrics."""
        if task not in self.tasks:
            return []
        kind = {"pocketlm": _ours, "openvino": _openvino, "mnn": _mnn}.get(self.name, _llama)
        return kind(self, task, plan, threads)


def _list(numbers):
    return ",".join(map(str, numbers))


# pocketlm


def _ours(engine, task, plan, threads):
    base = [engine.programs["pocketlm"], "bench", engine.path, "--json", "--repeat", "1"]
    base += ["--threads", str(threads), "--kv-k", engine.kv, "--kv-v", engine.kv]
    if task == "speed":
        # One call also measures start-up, memory and the read bandwidth.
        return [(base + ["-p", _list(plan.prompts), "-n", str(plan.decode)], parse_ours)]
    if task == "depth":
        command = base + ["-p", "0", "-n", str(plan.depth_tokens), "-d", _list(plan.depths)]
        return [(command, _rates_of(parse_ours))]
    if task == "long":
        return [(base + ["-p", str(plan.long_prompt), "-n", "0"], _rates_of(parse_ours))]
    return []


def parse_ours(run):
    report = json.loads(run.output)
    metrics = {}
    for row in report["results"]:
        at = f" @ {row['depth']}" if row["depth"] else ""
        metrics[f"{row['phase']} {row['tokens']}{at}"] = row["tok_s"]["median"]
        if row["phase"] == "decode" and not row["depth"] and row.get("bandwidth_fraction"):
            metrics["bandwidth_fraction"] = row["bandwidth_fraction"]
    metrics["read_bandwidth_bytes_s"] = report["read_bandwidth_bytes_s"]
    metrics["peak_rss_bytes"] = report["memory"]["peak_rss_bytes"]
    for key in ("load_ms", "first_token_ms"):
        if key in report.get("startup", {}):
            metrics[key] = report["startup"][key]["median"]
    metrics["cpu_variant"] = report["cpu_variant"]
    return metrics


def _rates_of(parser):
    def parse(run):
        return {key: value for key, value in parser(run).items() if key.startswith(("prefill ", "decode "))}

    return parse


# llama.cpp, and ik_llama.cpp with the same tools


def _llama(engine, task, plan, threads):
    cache = {"f16": "f16", "int8": "q8_0"}[engine.kv or "f16"]
    base = [engine.programs["llama-bench"], "-m", engine.path, "-t", str(threads), "-fa", "1", "-r", "1", "-o", "json"]
    base += ["-ctk", cache, "-ctv", cache, *engine.extra]
    probe = engine.programs.get("llama_probe")
    if task == "speed":
        return [(base + ["-p", _list(plan.prompts), "-n", str(plan.decode)], parse_llama_bench)]
    if task == "memory":
        command = base + ["-p", "0", "-n", "0", "-pg", _list(plan.memory)]
        return [(command, lambda run: {"peak_rss_bytes": run.peak_rss_bytes})]
    if task == "startup" and probe:
        return [([probe, engine.path, str(threads), "startup"], lambda run: json.loads(run.output))]
    if task == "depth" and probe:
        command = [probe, engine.path, str(threads), "depth", cache]
        return [(command + [str(depth), str(plan.depth_tokens)], parse_llama_depth) for depth in plan.depths]
    if task == "long":
        return [(base + ["-p", str(plan.long_prompt), "-n", "0", *_no_warmup(engine)], parse_llama_bench)]
    return []


def _no_warmup(engine):
    return ["-w", "0"] if engine.name == "ik_llama.cpp" else ["--no-warmup"]


def parse_llama_bench(run):
    """The JSON of llama-bench; a line or two of notes may stand before it."""
    rows = json.loads(run.output[run.output.index("[\n") :])
    metrics = {}
    for row in rows:
        if row["n_prompt"] and row["n_gen"]:
            continue
        phase = "prefill" if row["n_prompt"] else "decode"
        at = f" @ {row['n_depth']}" if row.get("n_depth") else ""
        metrics[f"{phase} {row['n_prompt'] or row['n_gen']}{at}"] = row["avg_ts"]
        metrics["weight_bytes"] = row["model_size"]
    return metrics


def parse_llama_depth(run):
    result = json.loads(run.output)
    return {f"decode {result['tokens']} @ {result['depth']}": result["tok_s"]}


# Python engines


def parse_last_line(run):
    metrics = json.loads(run.output.strip().splitlines()[-1])
    return {**metrics, "peak_rss_bytes": run.peak_rss_bytes}


def _openvino(engine, task, plan, threads):
    if task != "speed":
        return []
    command = [engine.programs["python"], str(HERE / "openvino_peer.py"), engine.path, str(threads)]
    return [(command + [_list(plan.prompts), str(plan.decode)], parse_last_line)]


def _mnn(engine, task, plan, threads):
    if task != "speed":
        return []
    command = [engine.programs["python"], str(HERE / "mnn_peer.py"), engine.path, str(threads)]
    return [(command + [_list(plan.prompts), str(plan.decode)], parse_last_line)]


def file_bytes(path):
    """Size of a file, or of the files in a folder."""
    path = pathlib.Path(path)
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
    return sum(os.path.getsize(file) for file in files)
