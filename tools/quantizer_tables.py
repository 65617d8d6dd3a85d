#!/usr/bin/env python3
"""Compares quantizers, ours and llama.cpp's, on weights that are on no grid, and prints the table of docs/compression.md.

    python tools/quantizer_tables.py --model smollm2-135m.gguf --calibration data/train/books_en --calibration data/train/wiki_zh \\
        --text en=valid.txt --text zh=gsd_dev.txt

The model, of the llama type, is turned by a random rotation first (rotate_gguf.py), and the F16 result given to both quantizers. Divergence
and perplexity are those of `pocketlm diff` against the F16 file, with float activations and F16 cache, so that nothing but the weights differs. For every file
of llama.cpp's there is one of ours of at most as many bytes (--target-mb). Needs the packages of tools/requirements-oracle.txt and
llama-cpp-python (tools/peer.py).
"""

import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PEER_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q4_K_M": 15}
OURS = [("int4, nearest", ["--head-type", "int4"], False), ("int4, for texts", ["--head-type", "int4"], True),
        ("int8, nearest", ["--type", "int8"], False)]


def peer_quantize(source, target, file_type):
    import llama_cpp

    keep = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp: cannot quantize {source}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/pocketlm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibration", action="append", required=True)
    parser.add_argument("--text", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--windows", type=int, default=20, help="of 512 tokens of each text (default 20)")
    flags = parser.parse_args()
    texts = [text.split("=", 1) for text in flags.text]
    calibration = [part for path in flags.calibration for part in ("--calibration", path)]

    def pocketlm(*arguments):
        done = subprocess.run([flags.program, *map(str, arguments), "--json"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = folder / "source.gguf"
        rotate = pathlib.Path(__file__).with_name("rotate_gguf.py")
        subprocess.run([sys.executable, rotate, flags.model, source], check=True)

        def row(name, path, bits):
            figures = []
            for _, text in texts:
                found = pocketlm("diff", source, path, text, "--max-windows", flags.windows, "--activations", "f32",
                                 "--kv-k", "f16", "--kv-v", "f16")["overall"]
                figures += [f"{found['kl_mean']:.4f}", f"{found['kl_p99']:.2f}", f"{found['b']['perplexity']:.2f}"]
                reference[text] = found["a"]["perplexity"]
            print(f"| {name} | {os.path.getsize(path) / 1e6:.1f} MB | {bits:.2f} | " + " | ".join(figures) + " |", flush=True)

        reference = {}
        print("| " + " | ".join(["weights", "file", "bits/weight"] + [f"{what} {name}" for name, _ in texts
                                                                   for what in ("KL", "KL 99%", "ppl")]) + " |")
        print("|---|" + "---|" * (2 + 3 * len(texts)))
        for name, arguments, for_texts in OURS:
            out = folder / "ours.plm"
            made = pocketlm("convert", source, "-o", out, *arguments, *(calibration if for_texts else []))
            row(name, out, made["bits_per_weight"])
        for name, file_type in PEER_TYPES.items():
            peer, ours = folder / "peer.gguf", folder / "ours.plm"
            peer_quantize(source, peer, file_type)
            size = os.path.getsize(peer)
            made = pocketlm("convert", source, "-o", ours, *calibration, "--target-mb", size / 1e6)
            row(f"llama.cpp {name}", peer, 8 * size / made["parameters"])
            row(f"ours of that size ({', '.join(t['type'] for t in made['types'] if t['type'] != 'F32')})", ours,
                made["bits_per_weight"])
        print("perplexity of the source: " + ", ".join(f"{name} {reference[text]:.2f}" for name, text in texts))


if __name__ == "__main__":
    main()
