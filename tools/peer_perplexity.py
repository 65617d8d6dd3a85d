#!/usr/bin/env python3
"""Perplexity of a GGUF model with llama.cpp and with PocketLM on the same windows of the same file.

    python tools/peer_perplexity.py --case smollm2=model.gguf,calib/wikitext2_en/valid.txt --windows 100

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
import time


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


def measure(name, model, text_path, args, store):
    key = f"{name}/{pathlib.Path(text_path).name}/{args.ctx}"
    entry = store.setdefault(key, {"ctx": args.ctx, "window_nll": []})
    scored_per_window = args.ctx // 2 - 1
    start = time.time()
    nlls = entry["window_nll"]
    if args.reuse and args.windows and len(nlls) >= args.windows:
        nlls = nlls[: args.windows]
    elif not (args.reuse and nlls and not args.windows):
        nlls = run_peer(model, text_path, args.ctx, args.threads, args.windows, nlls)
    row = {"case": key, "windows": len(nlls), "tokens": len(nlls) * scored_per_window,
           "peer_perplexity": math.exp(sum(nlls) / (len(nlls) * scored_per_window)), "peer_s": time.time() - start}
    if not args.peer_only:
        start = time.time()
        ours = run_ours(args.program, model, text_path, args.ctx, args.threads, len(nlls))
        row.update(ours_perplexity=ours["perplexity"], ours_s=time.time() - start,
                   same_tokens=ours["tokens"] == row["tokens"],
                   difference_percent=100 * (ours["perplexity"] / row["peer_perplexity"] - 1))
    return row


def print_row(row):
    text = f"{row['case']:48} {row['windows']:5} windows {row['tokens']:7} tokens  peer {row['peer_perplexity']:9.4f}"
    if "ours_perplexity" in row:
        text += f"  ours {row['ours_perplexity']:9.4f}  {row['difference_percent']:+.3f} %"
        text += "" if row["same_tokens"] else "  (NOT the same tokens)"
        text += f"  ({row['peer_s']:.0f} s, {row['ours_s']:.0f} s)"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", required=True, metavar="NAME=MODEL,FILE")
    parser.add_argument("--program", default="build/pocketlm")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--windows", type=int, default=0, help="only the first N windows (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-only", action="store_true")
    parser.add_argument("--store", type=pathlib.Path, help="JSON file that keeps the peer's window nlls")
    parser.add_argument("--reuse", action="store_true", help="take the peer's figures from --store if they are there")
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
    wrong = [r for r in rows if abs(r.get("difference_percent", 0)) > 0.5 or not r.get("same_tokens", True)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
