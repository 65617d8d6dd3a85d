#!/usr/bin/env python3
"""The tables of docs/compression.md on cut vocabularies, as Markdown.

    python tools/prune_vocab_tables.py --tokenizer qwen3.json --model gemma3-270m --sizes 65536,32768 \\
        --corpus data/train --eval data/eval --text en=valid.txt --text zh=gsd_dev.txt

The first table: how many more tokens the texts of --eval take after each cut. The second: the model of --model before
and after, all of them converted anew: bytes, parameters, bits per byte on each --text (`pocketlm perplexity --all`), and speed and
memory (`pocketlm bench`), measured in turns so that a change of the machine meets all of them.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile


def call(program, *arguments):
    command = [program, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def print_table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def growth_row(source, size, done):
    worst = sorted(done["sets"], key=lambda entry: -entry["increase"])[:3]
    languages = {entry["language"]: entry["increase"] for entry in done["languages"]}
    return [f"{source} → {size:,}", *(f"{languages[name]:+.2%}" for name in ("en", "zh")),
            ", ".join(f"{entry['set']} {entry['increase']:+.1%}" for entry in worst)]


def cut(args, source, size, out):
    return call(args.program, "prune-vocab", source, "--corpus", args.corpus, "--eval", args.eval, "--size", size, "-o", out)


def bench(args, models):
    """Medians over args.rounds of what one run of `bench` says of each model."""
    figures = {name: [] for name in models}
    for _ in range(args.rounds):
        for name, path in models.items():
            figures[name].append(call(args.program, "bench", path, "-p", 512, "-n", 128))
    return figures


def median_of(runs, read):
    return statistics.median(read(run) for run in runs)


def decode_speed(run):
    return next(result for result in run["results"] if result["phase"] == "decode")["tok_s"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/pocketlm")
    parser.add_argument("--tokenizer", help="a tokenizer.json for the first table alone")
    parser.add_argument("--model", help="a model for both tables")
    parser.add_argument("--sizes", default="65536", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--eval", required=True)
    parser.add_argument("--text", action="append", default=[], metavar="NAME=FILE", help="a text for bits per byte")
    parser.add_argument("--windows", default=0, type=int, help="windows of each text; 0: all")
    parser.add_argument("--rounds", default=3, type=int, help="runs of bench for each model")
    args = parser.parse_args()
    texts = dict(text.split("=", 1) for text in args.text)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        growth = []
        if args.tokenizer:
            done = cut(args, args.tokenizer, args.sizes[0], folder / "tokenizer.json")
            growth.append(growth_row(pathlib.Path(args.tokenizer).stem, args.sizes[0], done))
        models, reports = {}, {}
        if args.model:
            models["whole"] = folder / "whole.plm"
            reports["whole"] = call(args.program, "convert", args.model, "-o", models["whole"])
            for size in args.sizes:
                name = f"{size:,}"
                models[name] = folder / f"{size}.plm"
                reports[name] = cut(args, args.model, size, models[name])
                growth.append(growth_row(args.model, size, reports[name]))
        print_table(["tokens on the texts of --eval", "English", "Chinese", "worst sets"], growth)
        if not models:
            return
        windows = ["--max-windows", args.windows] if args.windows else []
        runs = bench(args, models)
        rows = []
        for name, path in models.items():
            bits = [call(args.program, "perplexity", path, text, "--all", *windows)["bits_per_byte"] for text in texts.values()]
            rows.append([name, f"{reports[name]['parameters'] / 1e6:.1f} M", f"{path.stat().st_size / 1e6:.1f} MB",
                         *(f"{value:.4f}" for value in bits),
                         f"{median_of(runs[name], decode_speed) / median_of(runs['whole'], decode_speed):.2f}×",
                         f"{median_of(runs[name], lambda run: run['memory']['peak_rss_bytes']) / 1e6:.0f} MB"])
        print_table([args.model, "parameters", "file", *(f"bits/byte {name}" for name in texts), "decode", "peak RSS"], rows)


if __name__ == "__main__":
    main()
