"""pocketlm inspect --tensors and --against: what numpy finds in the files, read with the gguf package."""

import json

import gguf
import numpy as np
import pytest

from conftest import SOURCE_DIR

GOLDENS = SOURCE_DIR / "tests" / "goldens"
CONFIG = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 320,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}
BLOCK = 32


def report(done):
    assert done.returncode == 0, done.err
    assert done.err == ""
    return json.loads(done.out)


def tensors_of(run, path, *flags):
    return {tensor["name"]: tensor for tensor in report(run("inspect", path, "--tensors", "--json", *flags))["tensors"]}


@pytest.fixture
def model(run, tmp_path):
    """model(name, *flags) -> a file with the same random weights, encoded as the flags say."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))

    def make(name, *flags):
        made = run("new", "--config", config, "-o", tmp_path / name, *flags)
        assert made.returncode == 0, made.err
        return tmp_path / name

    return make


def read(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def values_of(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def codes_and_scales(tensor):
    """Codes as they are stored and the halves before them, of Q4_0, Q4_1 and Q8_0 blocks."""
    blocks = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
    raw = tensor.data.reshape(-1, blocks[tensor.tensor_type.name])
    scales = raw[:, :2].copy().view(np.float16).astype(np.float64)
    if tensor.tensor_type.name == "Q8_0":
        return raw[:, 2:].copy().view(np.int8), scales
    nibbles = raw[:, 4 if tensor.tensor_type.name == "Q4_1" else 2:]
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=1), scales


def assert_values(found, values):
    finite = values[np.isfinite(values)]
    assert found["minimum"] == pytest.approx(finite.min()) and found["maximum"] == pytest.approx(finite.max())
    assert found["rms"] == pytest.approx(np.sqrt(np.mean(finite ** 2)))
    assert found["zeros"] == (finite == 0).sum()
    assert found["non_finite"] == values.size - finite.size


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q8_0", "f16"])
def test_figures_equal_numpy(run, model, kind):
    path = model("m.gguf", "--type", kind)
    found, stored = tensors_of(run, path), read(path)
    assert found.keys() == stored.keys()
    for name, tensor in stored.items():
        assert found[name]["type"] == tensor.tensor_type.name
        assert_values(found[name], values_of(tensor))
        if tensor.tensor_type.name in ("F32", "F16"):
            assert "codes" not in found[name]
            continue
        codes, scales = codes_and_scales(tensor)
        assert found[name]["group_size"] == BLOCK and found[name]["groups"] == len(codes)
        counts = {found[name]["first_code"] + i: count for i, count in enumerate(found[name]["codes"]) if count}
        assert counts == dict(zip(*(column.tolist() for column in np.unique(codes, return_counts=True))))
        assert found[name]["codes"][0] > 0 and found[name]["codes"][-1] > 0
        assert found[name]["scale_minimum"] == scales.min() and found[name]["scale_maximum"] == scales.max()
        assert found[name]["zero_groups"] == found[name]["non_finite_scales"] == 0


@pytest.mark.parametrize("kind", ["q4_1", "q8_0"])
def test_errors_against_the_source_equal_numpy(run, model, kind):
    source, path = model("exact.gguf", "--type", "f16"), model("m.gguf", "--type", kind)
    found = tensors_of(run, path, "--against", source)
    wanted, stored = read(source), read(path)
    for name, tensor in stored.items():
        exact = values_of(wanted[name])
        error = values_of(tensor) - exact
        assert found[name]["relative_rms_error"] == pytest.approx(np.sqrt((error ** 2).sum() / (exact ** 2).sum()))
        assert found[name]["maximum_error"] == pytest.approx(np.abs(error).max())
    assert found["output_norm.weight"]["maximum_error"] == 0 < found["output.weight"]["maximum_error"]


def test_plm_files_have_the_codes_of_the_gguf_files_made_from_them(run, model, tmp_path):
    plm, blocks = model("m.plm", "--type", "int4", "--group-size", "64"), tmp_path / "m.gguf"
    assert run("convert", plm, "-o", blocks, "--type", "q4_1").returncode == 0
    ours = tensors_of(run, plm, "--against", blocks)
    theirs = tensors_of(run, blocks)
    assert len(ours) == len(theirs)
    assert all(tensor["maximum_error"] == 0 for tensor in ours.values())  # q_proj and k_proj lie in another order
    by_codes = {json.dumps(tensor["codes"]): tensor for tensor in theirs.values() if "codes" in tensor}
    packed = [tensor for tensor in ours.values() if "codes" in tensor]
    assert len(packed) == 16
    for tensor in packed:
        twin = by_codes[json.dumps(tensor["codes"])]
        assert tensor["group_size"] == 64 and tensor["groups"] * 2 == twin["groups"]
        assert (tensor["scale_minimum"], tensor["scale_maximum"]) == (twin["scale_minimum"], twin["scale_maximum"])


@pytest.mark.parametrize("name", ["tiny_qwen3", "tiny_llama", "tiny_llama_untied", "tiny_llama3", "tiny_gemma3"])
def test_a_folder_and_its_gguf_file_have_no_difference(run, name):
    for path, against in (("hf", "model.gguf"), ("model.gguf", "hf")):
        for tensor in tensors_of(run, GOLDENS / name / path, "--against", GOLDENS / name / against).values():
            if tensor["name"] == "rope_freqs.weight":  # a rule in the folder's config
                continue
            assert tensor["maximum_error"] == tensor["relative_rms_error"] == 0, tensor["name"]


def patched(path, name, blocks, replacement):
    """Overwrites the first bytes of some blocks."""
    tensor = read(path)[name]
    content = bytearray(path.read_bytes())
    for block in blocks:
        start = tensor.data_offset + block * {"Q4_1": 20, "Q8_0": 34}[tensor.tensor_type.name]
        content[start:start + len(replacement)] = replacement
    path.write_bytes(content)


def test_groups_of_zeros_of_one_value_and_scales_that_are_not_finite(run, model):
    path = model("m.gguf", "--type", "q8_0")
    patched(path, "blk.0.ffn_up.weight", [3], bytes(34))
    patched(path, "blk.0.ffn_up.weight", [5], b"\x00\x3c" + bytes([7]) * 32)
    patched(path, "blk.0.ffn_up.weight", [9], b"\x00\x7c")  # infinity
    patched(path, "blk.1.attn_q.weight", [0], b"\x01\x7e")  # NaN
    found, stored = tensors_of(run, path), read(path)
    up = found["blk.0.ffn_up.weight"]
    assert (up["zero_groups"], up["constant_groups"], up["non_finite_scales"]) == (1, 1, 1)
    assert up["non_finite"] >= 31 and up["maximum"] == 7 and up["scale_maximum"] == 1 and up["scale_minimum"] == 0
    with np.errstate(invalid="ignore"):
        assert_values(up, values_of(stored["blk.0.ffn_up.weight"]))
    assert found["blk.1.attn_q.weight"]["non_finite"] == 32
    assert found["blk.1.ffn_up.weight"]["non_finite"] == found["blk.1.ffn_up.weight"]["zero_groups"] == 0
    text = run("inspect", path, "--tensors").out
    assert "1 groups of zeros" in text and "1 groups of one value" in text and "NOT FINITE" in text
    assert f"1 of {sum(t.get('groups', 0) for t in found.values()):,} groups are zeros" in text


def test_a_matrix_of_nothing_but_nan(run, model):
    path = model("m.gguf", "--type", "q4_1")
    tensor = read(path)["blk.0.attn_k.weight"]
    patched(path, "blk.0.attn_k.weight", range(tensor.n_elements // BLOCK), b"\xff\x7f")
    found = tensors_of(run, path)["blk.0.attn_k.weight"]
    assert found["minimum"] is None and found["scale_minimum"] is None and found["rms"] == 0
    assert found["non_finite"] == tensor.n_elements and found["non_finite_scales"] == tensor.n_elements // BLOCK
    assert "values - … -" in run("inspect", path, "--tensors").out


def test_the_text_report_and_the_default_without_figures(run, model):
    source, path = model("exact.plm", "--type", "f16"), model("m.plm", "--type", "int4", "--head-type", "int8")
    text = run("inspect", path, "--against", source).out
    assert text.count("codes |") == 16 and text.count("error ") == 16 and text.count("  exact") == 5
    assert "█" in text and "NOT FINITE" not in text
    plain = run("inspect", path)
    assert "codes" not in plain.out and "not finite" not in plain.out
    assert all("zeros" not in tensor for tensor in report(run("inspect", path, "--json"))["tensors"])
    assert tensors_of(run, path, "--threads", "1") == tensors_of(run, path, "--threads", "3")


def test_models_of_another_shape_are_refused_but_for_the_vocabulary(run, model, tmp_path):
    path = model("m.gguf", "--type", "q8_0")
    done = run("inspect", path, "--against", GOLDENS / "tiny_llama" / "hf")
    assert done.returncode == 1 and done.out == "" and done.err.count("\n") == 1
    assert "tensor embed_tokens.weight: expected [312, 36]" in done.err and "[320, 128]" in done.err
    other = tmp_path / "other.json"
    for change, message in (({"num_hidden_layers": 1}, "layers.1."), ({"intermediate_size": 64}, "mlp.")):
        other.write_text(json.dumps({**CONFIG, **change}))
        assert run("new", "--config", other, "-o", tmp_path / "other.gguf").returncode == 0
        done = run("inspect", path, "--against", tmp_path / "other.gguf")
        assert done.returncode == 1 and message in done.err, done.err
    other.write_text(json.dumps({**CONFIG, "vocab_size": 384}))
    assert run("new", "--config", other, "-o", tmp_path / "other.gguf").returncode == 0
    found = tensors_of(run, path, "--against", tmp_path / "other.gguf")
    assert "maximum_error" not in found["token_embd.weight"] and "maximum_error" not in found["output.weight"]
    assert "maximum_error" in found["blk.1.ffn_down.weight"]
    assert run("inspect", path, "--against", tmp_path / "none.gguf").returncode == 1
