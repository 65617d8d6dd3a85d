#!/usr/bin/env python3
"""Perplexity of a GGUF model with llama.cpp and with PocketLM on the same windows of the same file.

    python tools/peer_perplexity.py --case smollm2=model.gguf,calib/wikitext2_en/valid.txt --windows 100

llama.cpp rounds activations to int8 where weights are quantized; PocketLM computes in float. --exact also
measures llama.cpp on a copy of the model with the same weights as F32, where it computes in float as well:
that figure tells whether the engines agree, the other one what llama.cpp's rounding costs.

Windows are llama.cpp's: --ctx tokens without overlap, the first half unscored, BOS in place of a window's
first token if the model adds one, the last partial window dropped. Needs tools/requirements-oracle.txt and
llama-cpp-python (see tools/peer.py).
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

from dequantize_gguf import dequantize


def run_peer(model, text_path, ctx, threads, windows, known):
    """Extends the list of window nlls in `known` to `windows` of them (0: all)."""
    from peer import Peer

    peer = Peer(model, ctx, threads)
    tokens = peer.tokenize(pathlib.Path(text_path).read_bytes())
    total = len(tokens) // ctx
    wanted = min(windows or total, total)
    for i in range(len(known), wanted):
        known.append(peer.window_nll(tokens[i * ctx : (i + 1) * ctx]))
        if sys.stderr.isatty():
            print(f"\rpeer {i + 1}/{wanted}", end="", file=sys.stderr)
    return known[:wanted]


def run_ours(program, model, text_path, ctx, threads, windows):
    command = [program, "perplexity", model, text_path, "--ctx", str(ctx), "--threads", str(threads), "--json"]
    if windows:
        command += ["--max-windows", str(windows)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def peer_nlls(key, model, text_path, args, store):
    """The peer's window nlls, from the store where it has enough of them."""
    known = store.setdefault(key, [])
    wanted = args.windows
    if wanted and len(known) >= wanted:
        return known[:wanted]
    return run_peer(model, text_path, args.ctx, args.threads, wanted, known)


def measure(name, model, text_path, args, store):
    file = pathlib.Path(text_path)
    key = f"{name}/{file.parent.name}/{file.name}/{args.ctx}"
    scored_per_window = args.ctx // 2 - 1
    nlls = peer_nlls(key, model, text_path, args, store)
    row = {"case": key, "windows": len(nlls), "tokens": len(nlls) * scored_per_window}
    row["peer"] = math.exp(sum(nlls) / row["tokens"])
    if args.exact:
        with tempfile.TemporaryDirectory() as folder:
            copy = str(pathlib.Path(folder) / "f32.gguf")
            if len(store.get(key + "/exact", [])) < len(nlls):
                dequantize(model, copy)
            exact = peer_nlls(key + "/exact", copy, text_path, args, store)
        row["peer_exact"] = math.exp(sum(exact) / row["tokens"])
    if not args.peer_only:
        start = time.time()
        ours = run_ours(args.program, model, text_path, args.ctx, args.threads, len(nlls))
        row.update(ours=ours["perplexity"], ours_s=time.time() - start, same_tokens=ours["tokens"] == row["tokens"])
    return row


def difference_percent(row, reference):
    return 100 * (row["ours"] / row[reference] - 1)


def print_row(row):
    text = f"{row['case']:40} {row['windows']:4} windows {row['tokens']:6} tokens  llama.cpp {row['peer']:8.4f}"
    if "peer_exact" in row:
        text += f"  llama.cpp on F32 {row['peer_exact']:8.4f}"
    if "ours" in row:
        text += f"  ours {row['ours']:8.4f} ({difference_percent(row, 'peer'):+.3f} %"
        text += f", {difference_percent(row, 'peer_exact'):+.4f} %)" if "peer_exact" in row else ")"
        text += "" if row["same_tokens"] else "  NOT the same tokens"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", required=True, metavar="NAME=MODEL,FILE")
    parser.add_argument("--program", default="build/pocketlm")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--windows", type=int, default=0, help="only the first N windows (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-only", action="store_true")
    parser.add_argument("--exact", action="store_true", help="also the peer on an F32 copy of the model")
    parser.add_argument("--store", type=pathlib.Path, help="JSON file that keeps the peer's window nlls for reuse")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows to this file")
    args = parser.parse_args()
    store = json.loads(args.store.read_text()) if args.store and args.store.exists() else {}
    rows = []
    for case in args.case:
        name, _, rest = case.partition("=")
        model, _, text_path = rest.partition(",")
        rows.append(measure(name, model, text_path, args, store))
        print_row(rows[-1])
        if args.store:
            args.store.write_text(json.dumps(store) + "\n")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    reference = "peer_exact" if args.exact else "peer"
    wrong = [r for r in rows if "ours" in r and (abs(difference_percent(r, reference)) > 0.5 or not r["same_tokens"])]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
