#!/usr/bin/env python3
"""Greedy continuations of ten prompts with llama.cpp and with PocketLM, compared token by token.

    python tools/peer_greedy.py --model model.gguf [--exact]

A first difference is explained with llama.cpp's logits at that step: the margin between its choice and ours.
--exact runs llama.cpp on an F32 copy of the model (see tools/peer_perplexity.py). Exit status 1 if a
difference has a margin above --margin.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from dequantize_gguf import dequantize

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a kettle that",
    "Water boils at",
    "def fibonacci(n):\n",
    "To make a good cup of tea, you",
    "The three primary colors are",
    "In 1969, the first humans",
    "今天天气很好，我们",
    "北京是中国的",
    "Q: What is 12 + 30?\nA:",
]


def peer_continuation(peer, prompt, count):
    """Token ids and, for each, the logits that it was chosen from."""
    tokens = peer.tokenize(prompt.encode())
    peer.clear()
    logits = peer.decode(tokens, 0, len(tokens) - 1)[-1].copy()
    out = []
    for position in range(len(tokens), len(tokens) + count):
        token = int(np.argmax(logits))
        out.append((token, logits))
        logits = peer.decode([token], position, 0)[-1].copy()
    return out


def our_continuation(program, model, prompt, count, threads):
    command = [program, "run", model, "-p", prompt, "--raw", "-n", str(count), "--temp", "0",
               "--threads", str(threads), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)["text"]


def compare(peer, steps, text):
    """(number of equal tokens, None), or with the first differing step's margin and our token."""
    said = b""
    ours = text.encode()
    for index, (token, logits) in enumerate(steps):
        if peer.is_end(token):
            return index, None if len(ours) == len(said) else (0.0, "went on where llama.cpp stopped")
        piece = peer.piece(token)
        if ours.startswith(said + piece) or (ours + b"\xef\xbf\xbd").startswith(said + piece):
            said += piece
            continue
        for other in np.argsort(-logits)[:20]:
            if peer.piece(int(other)) and ours[len(said):].startswith(peer.piece(int(other))) and other != token:
                return index, (float(logits[token] - logits[other]), repr(peer.piece(int(other)).decode(errors="replace")))
        if len(ours) - len(said) < 4:  # an unfinished character at the end
            return index, None
        return index, (float("inf"), "none of llama.cpp's first 20")
    return len(steps), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--program", default="build/pocketlm")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--margin", type=float, default=0.1, help="largest logit margin that explains a difference")
    args = parser.parse_args()
    from peer import Peer

    unexplained = 0
    with tempfile.TemporaryDirectory() as folder:
        path = args.model
        if args.exact:
            path = str(pathlib.Path(folder) / "f32.gguf")
            dequantize(args.model, path)
        peer = Peer(path, 512, args.threads)
        for prompt in PROMPTS:
            steps = peer_continuation(peer, prompt, args.tokens)
            text = our_continuation(args.program, args.model, prompt, args.tokens, args.threads)
            equal, difference = compare(peer, steps, text)
            line = f"{prompt!r:48} {equal:3} equal tokens"
            if difference:
                margin, token = difference
                line += f"; then ours is {token}, llama.cpp's margin over it {margin:.4f}"
                unexplained += not margin <= args.margin
            print(line, flush=True)
    print(f"{unexplained} unexplained differences")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
