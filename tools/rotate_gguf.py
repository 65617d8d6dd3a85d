#!/usr/bin/env python3
"""Writes a GGUF model of the llama type anew, in F16, with its residual stream turned by a random rotation.

    python tools/rotate_gguf.py model.gguf rotated.gguf [--seed 1]

Computes the same function, but for the rounding to F16: RMSNorm commutes with an orthogonal matrix Q once its weights are folded into the
matrices after it. Weights that were on the grid of a quantized type are on none afterwards, so quantizers can be compared on a
model that exists in 4 bits only. A tied head gets a table of its own, since the last norm's weights are in it. (Ashkboos et al. 2024, "SliceGPT",
theorem 1.)
"""

import argparse

import gguf
import numpy as np

READS = {"attn_q": "attn_norm", "attn_k": "attn_norm", "attn_v": "attn_norm", "ffn_gate": "ffn_norm", "ffn_up": "ffn_norm"}
WRITES = ("attn_output", "ffn_down")


def random_rotation(size, seed):
    """An orthogonal matrix, uniform over all of them, float64."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return q * np.sign(np.diag(r))


def rotate(tensors, q):
    """name -> float array of the turned model."""
    out = {}
    for name, value in tensors.items():
        if name.endswith("norm.weight"):
            out[name] = np.ones_like(value)
            continue
        part = name.removesuffix(".weight").rsplit(".", 1)
        if part[-1] in READS:
            out[name] = (value * tensors[f"{part[0]}.{READS[part[-1]]}.weight"]) @ q
        elif part[-1] in WRITES:
            out[name] = q.T @ value
        elif name == "token_embd.weight":
            out[name] = value @ q
        elif name != "output.weight":
            raise SystemExit(f"{name}: expected a tensor of the llama type")
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    out["output.weight"] = (head * tensors["output_norm.weight"]) @ q
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    reader = gguf.GGUFReader(flags.source)
    if reader.fields["general.architecture"].contents() != "llama":
        raise SystemExit("expected general.architecture = llama, got " + reader.fields["general.architecture"].contents())
    tensors = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
               .reshape([int(n) for n in reversed(tensor.shape)]) for tensor in reader.tensors}
    q = random_rotation(tensors["token_embd.weight"].shape[1], flags.seed)
    writer = gguf.GGUFWriter(flags.target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for name, value in rotate(tensors, q).items():
        writer.add_tensor(name, value.astype(np.float32 if value.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
