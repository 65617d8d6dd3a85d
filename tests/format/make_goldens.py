#!/usr/bin/env python3
"""Writes the small golden files of tests/format/goldens with the formats' own Python packages.

  python3 tests/format/make_goldens.py        (needs numpy, gguf >= 0.17, safetensors >= 0.5)

quants.gguf        for each of the 11 types, "t.<TYPE>" [4, 512] as stored and "f.<TYPE>" [4, 512] F32,
                   the values that gguf.quants.dequantize reads from it. The K types, which gguf-py cannot
                   quantize, hold random blocks with scales of ordinary size.
metadata.gguf      one metadata key of every GGUF value type and array type, two small tensors.
types.safetensors  one tensor of each float type that we read, one I64, a scalar, an empty one, __metadata__.

The random numbers are seeded: the same package versions write the same bytes.
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save

GOLDENS = pathlib.Path(__file__).parent / "goldens"
ROWS, COLUMNS = 4, 512
TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
         Type.Q4_K, Type.Q5_K, Type.Q6_K]


def random_k_blocks(rng, kind):
    """Random bytes for the quants and 6-bit scales, normal fp16 numbers where d and dmin stand."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // values, size), dtype=np.uint8)

    def put_half(offset, low, high):
        d = rng.uniform(low, high, blocks.shape[:2]).astype(np.float16)
        blocks[..., offset:offset + 2] = d[..., None].view(np.uint8)

    if kind == Type.Q6_K:
        put_half(size - 2, 1e-4, 2e-3)
    else:
        put_half(0, 1e-4, 2e-3)
        put_half(2, 1e-3, 2e-2)
    return blocks.reshape(ROWS, -1)


def write_quants():
    rng = np.random.default_rng(20240607)
    writer = gguf.GGUFWriter(GOLDENS / "quants.gguf", "golden")
    for kind in TYPES:
        values = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
        if kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
            stored = random_k_blocks(rng, kind)
        else:
            stored = gguf.quants.quantize(values, kind)
        expected = gguf.quants.dequantize(stored, kind).astype(np.float32)
        assert expected.shape == (ROWS, COLUMNS) and np.isfinite(expected).all()
        writer.add_tensor("t." + kind.name, stored, raw_dtype=kind)
        writer.add_tensor("f." + kind.name, expected)
    finish(writer)


def write_metadata():
    writer = gguf.GGUFWriter(GOLDENS / "metadata.gguf", "golden")
    writer.add_custom_alignment(64)
    writer.add_uint8("v.u8", 200)
    writer.add_int8("v.i8", -100)
    writer.add_uint16("v.u16", 60000)
    writer.add_int16("v.i16", -30000)
    writer.add_uint32("v.u32", 4000000000)
    writer.add_int32("v.i32", -2000000000)
    writer.add_uint64("v.u64", 2**64 - 1)
    writer.add_int64("v.i64", -(2**62))
    writer.add_float32("v.f32", 0.1)
    writer.add_float64("v.f64", 0.1)
    writer.add_bool("v.true", True)
    writer.add_bool("v.false", False)
    writer.add_string("v.string", "Grüße, 世界 🦙")
    writer.add_string("v.empty", "x")
    writer.add_array("a.strings", ["a", "Ġb", "中文", "d" * 300])
    writer.add_array("a.floats", [0.5, -1.25, 3e8])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.bools", [True, False, True])
    writer.add_tensor("first", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("second", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors():
    # The numpy front end has no bfloat16: the tensor is written as U16 and renamed in the header,
    # which keeps its length.
    bf16 = (np.array([1.0, -2.5, 3.140625, 1e30], dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    data = save(
        {
            "half": np.arange(6, dtype=np.float16).reshape(2, 3) / 4,
            "brain": bf16.reshape(2, 2),
            "full": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 2, 2),
            "ids": np.array([1, -2], dtype=np.int64),
            "scalar": np.array(7.5, dtype=np.float32),
            "empty": np.zeros((0, 4), dtype=np.float32),
        },
        metadata={"format": "np", "note": "Grüße, 世界"},
    )
    assert data.count(b'"dtype":"U16"') == 1
    length = int.from_bytes(data[:8], "little")
    header = data[8:8 + length].replace(b'"dtype":"U16"', b'"dtype":"BF16"').rstrip(b" ")
    header += b" " * (-len(header) % 8)
    (GOLDENS / "types.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length:])


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    write_quants()
    write_metadata()
    write_safetensors()
