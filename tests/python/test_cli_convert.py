"""pocketlm convert and new: reports, exit statuses, what the gguf package reads from our GGUF files."""

import gzip
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import gguf
import numpy as np
import pytest

from conftest import SOURCE_DIR, data_path, environment_for, require_model

GOLDENS = SOURCE_DIR / "tests" / "goldens"
CONFIG = {
    "model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
    "max_position_embeddings": 256, "tie_word_embeddings": True, "rope_theta": 1e6,
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def report(done):
    assert done.returncode == 0, done.err
    assert done.err == ""
    assert done.out.count("\n") == 1
    return json.loads(done.out)


def values(path):
    """name -> float32 array of a GGUF file, as the gguf package decodes them."""
    reader = gguf.GGUFReader(path)
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(reversed(t.shape.tolist())))
            for t in reader.tensors}


def fields(path):
    reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}


@pytest.mark.parametrize("name", ["tiny_qwen3", "tiny_llama", "tiny_llama_untied", "tiny_llama3", "tiny_gemma3"])
def test_gguf_equals_the_package_made_one(run, tmp_path, name):
    out = tmp_path / "out.gguf"
    made = report(run("convert", GOLDENS / name / "hf", "-o", out, "--type", "f16", "--json"))
    assert all(t["exact"] for t in made["types"])
    ours, golden = values(out), values(GOLDENS / name / "model.gguf")
    assert ours.keys() == golden.keys()
    for tensor, expected in golden.items():
        np.testing.assert_allclose(ours[tensor], expected, rtol=1e-6 if tensor == "rope_freqs.weight" else 0)
    mine, theirs = fields(out), fields(GOLDENS / name / "model.gguf")
    for key, value in theirs.items():
        # What names the file, and a BOS that the folder does not declare.
        if key.startswith("general.") and key != "general.architecture":
            continue
        if key == "tokenizer.ggml.bos_token_id" and not theirs["tokenizer.ggml.add_bos_token"]:
            continue
        if key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.tokens"):
            assert len(mine[key]) == len(value), key
        elif isinstance(value, float):
            assert mine[key] == pytest.approx(value, rel=1e-6), key
        elif not isinstance(value, bool) or key in mine:
            assert mine[key] == value, key


@pytest.mark.parametrize("kind,bits", [("q4_0", 4.5), ("q4_1", 5), ("q8_0", 8.5), ("f16", 16)])
def test_every_gguf_type_as_the_package_reads_it(run, tmp_path, config, kind, bits):
    plm, out, exact = tmp_path / "m.plm", tmp_path / "m.gguf", tmp_path / "exact.gguf"
    report(run("new", "--config", config, "-o", plm, "--type", "f16", "--json"))
    report(run("convert", plm, "-o", exact, "--type", "f16", "--json"))
    made = report(run("convert", plm, "-o", out, "--type", kind, "--json"))
    body = next(t for t in made["types"] if t["type"] == kind.upper())
    assert body["bytes"] == body["parameters"] * bits / 8
    source, stored = values(exact), values(out)
    squares = errors = 0.0
    largest = 0.0
    for name, wanted in source.items():
        if wanted.ndim == 1:
            np.testing.assert_array_equal(stored[name], wanted)
            continue
        difference = stored[name].astype(np.float64) - wanted
        errors += float((difference ** 2).sum())
        squares += float((wanted.astype(np.float64) ** 2).sum())
        largest = max(largest, float(np.abs(difference).max()))
    assert body["relative_rms_error"] == pytest.approx((errors / squares) ** 0.5, rel=1e-6)
    assert body["max_error"] == pytest.approx(largest, rel=1e-6)
    assert body["exact"] == (errors == 0)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_rounding_is_no_worse_than_the_package(run, tmp_path, config, kind):
    exact, out = tmp_path / "exact.gguf", tmp_path / "m.gguf"
    report(run("new", "--config", config, "-o", exact, "--type", "f16", "--json"))
    report(run("convert", exact, "-o", out, "--type", kind.lower(), "--json"))
    quant_type = gguf.GGMLQuantizationType[kind]
    stored = values(out)
    for name, wanted in values(exact).items():
        if wanted.ndim == 1:
            continue
        theirs = gguf.quants.dequantize(gguf.quants.quantize(wanted, quant_type), quant_type)
        ours_error = np.square(stored[name] - wanted).sum(dtype=np.float64)
        their_error = np.square(theirs - wanted).sum(dtype=np.float64)
        assert ours_error <= their_error * 1.0001, name


def test_a_real_model_keeps_its_codes(run, tmp_path):
    model = require_model("smollm2-135m")
    plm, back = tmp_path / "m.plm", tmp_path / "back.gguf"
    made = report(run("convert", model, "-o", plm, "--json"))
    assert [t["type"] for t in made["types"]] == ["F32", "i8 g32", "u4 g32 min_f16"]
    assert all(t["exact"] for t in made["types"])
    assert made["parameters"] == 134515008
    again = report(run("convert", plm, "-o", back, "--json"))
    assert all(t["exact"] for t in again["types"])
    theirs = {t.name: t for t in gguf.GGUFReader(model).tensors}
    ours = {t.name: t for t in gguf.GGUFReader(back).tensors}
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].tensor_type == tensor.tensor_type, name
        assert np.array_equal(ours[name].data, tensor.data), name
    mine, original = fields(back), fields(model)
    for key, value in original.items():
        if key.startswith(("llama.", "tokenizer.")):
            assert mine[key] == value, key
    # The same logits, as the same bits come out of the same numbers.
    text = tmp_path / "text"
    text.write_text("The kettle is blue, and the cat sleeps on the mat by the door. " * 12)
    figures = [report(run("perplexity", path, text, "--ctx", "64", "--max-windows", "1", "--json"))
               for path in (model, back)]
    assert figures[0] == figures[1]


def test_models_with_random_weights_work(run, tmp_path, config):
    plm = tmp_path / "m.plm"
    made = report(run("new", "--config", config, "-o", plm, "--random-seed", "5", "--json"))
    assert made["seed"] == 5
    assert made["architecture"] == "qwen3"
    assert made["verified"] is True
    assert made["bytes"] == plm.stat().st_size
    answer = report(run("run", plm, "-p", "Hello", "-n", "4", "--json"))
    assert answer["tokens_out"] >= 1
    # Activations keep their size: the guesses are no surer than chance allows.
    text = tmp_path / "text"
    text.write_bytes(random.Random(1).randbytes(2000))
    figures = report(run("perplexity", plm, text, "--ctx", "64", "--json"))
    assert CONFIG["vocab_size"] / 2 < figures["perplexity"] < CONFIG["vocab_size"] * 4
    tokens = run("tokenize", plm, "-f", text, "--json")
    ids = json.loads(tokens.out)["ids"]
    assert max(ids) < CONFIG["vocab_size"]


def test_the_same_seed_makes_the_same_file(run, tmp_path, config):
    def made(name, *flags):
        report(run("new", "--config", config, "-o", tmp_path / name, "--json", *flags))
        return (tmp_path / name).read_bytes()

    first = made("a.plm")
    assert first == made("b.plm", "--random-seed", "0", "--threads", "1")
    assert first != made("c.plm", "--random-seed", "1")


def test_the_text_report(run, tmp_path, config):
    done = run("new", "--config", config, "-o", tmp_path / "m.plm")
    assert done.returncode == 0
    assert done.err == ""
    assert "verified" in done.out
    assert "u4 g64 zero4" in done.out and "RMS error" in done.out
    done = run("convert", tmp_path / "m.plm", "-o", tmp_path / "m.gguf")
    assert "Q4_1" in done.out and "exact" in done.out


@pytest.mark.parametrize("arguments,text", [
    ([], "-o"),
    (["-o", "x.bin"], "expected a name that ends in .plm, .gguf or, for a folder, /"),
    (["-o", "x.plm", "--type", "q4_1"], "type: expected int4, int8, f16 for a .plm file"),
    (["-o", "x.gguf", "--type", "int4"], "type: expected q4_0, q4_1, q8_0, f16 for a .gguf file"),
    (["-o", "x.plm", "--head-type", "3"], "head type: expected"),
    (["-o", "x.plm", "--group-size", "48"], "group size: expected 32, 64 or 128, got 48"),
    (["-o", "x.plm", "--group-size", "-1"], "--group-size"),
    (["-o", "x.plm", "--offset", "zero"], "offset: expected none, zero4 or min_f16"),
    (["-o", "x.plm", "--threads", "-3"], "--threads"),
    (["-o", "x.plm", "--unknown"], "--unknown"),
])
def test_wrong_usage(run, tmp_path, config, arguments, text):
    report(run("new", "--config", config, "-o", tmp_path / "m.plm", "--json"))
    for command in (["convert", "m.plm"], ["new", "--config", config]):
        done = run(*command, *arguments, cwd=tmp_path)
        assert done.returncode == 2, done.err
        assert done.out == ""
        assert text in done.err and done.err.count("\n") == 1
        assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "m.plm"]


def test_the_input_is_no_output(run, tmp_path, config):
    path = tmp_path / "m.plm"
    report(run("new", "--config", config, "-o", path, "--json"))
    before = path.read_bytes()
    done = run("convert", path, "-o", tmp_path / "." / "m.plm")
    assert done.returncode == 2
    assert "got the input" in done.err
    assert path.read_bytes() == before


def test_failed_work_leaves_nothing(run, tmp_path, config):
    path = tmp_path / "m.gguf"
    report(run("new", "--config", config, "-o", path, "--json"))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:-100])
    done = run("convert", cut, "-o", tmp_path / "x.plm")
    assert done.returncode == 1
    assert done.err.count("\n") == 1
    assert not (tmp_path / "x.plm").exists()
    done = run("convert", path, "-o", tmp_path / "none" / "x.plm")
    assert done.returncode == 1
    done = run("convert", tmp_path / "missing", "-o", tmp_path / "x.plm")
    assert done.returncode == 1
    done = run("new", "--config", "pocket-9b", "-o", tmp_path / "x.plm")
    assert done.returncode == 2
    assert "pocket-0.3b, qwen3-0.6b" in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "cut.gguf", "m.gguf"]


@pytest.mark.skipif(os.name != "posix", reason="limits of file size")
def test_a_full_disk_is_an_error(program, tmp_path, config):
    script = f"ulimit -f 100; trap '' XFSZ; exec '{program}' new --config '{config}' -o '{tmp_path}/m.plm'"
    done = subprocess.run(["bash", "-c", script], env=environment_for(tmp_path / "home"), timeout=60,
                          capture_output=True, check=False)
    assert done.returncode == 1
    assert b"m.plm" in done.stderr and done.stderr.count(b"\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def big_config(tmp_path):
    path = tmp_path / "big.json"
    path.write_text(json.dumps(CONFIG | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8}))
    return path


def test_ctrl_c_leaves_nothing(program, tmp_path):
    config = big_config(tmp_path)
    process = subprocess.Popen([program, "new", "--config", config, "-o", tmp_path / "m.plm", "--threads", "1"],
                               env=environment_for(tmp_path / "home"), stderr=subprocess.PIPE)
    wait_for_part(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"cancelled" in err
    assert [p.name for p in tmp_path.iterdir()] == ["big.json"]


def test_a_killed_program_leaves_no_half_model(program, tmp_path):
    config = big_config(tmp_path)
    process = subprocess.Popen([program, "new", "--config", config, "-o", tmp_path / "m.plm", "--threads", "1"],
                               env=environment_for(tmp_path / "home"))
    wait_for_part(tmp_path, process)
    process.kill()
    process.wait(timeout=60)
    assert not (tmp_path / "m.plm").exists()


def wait_for_part(folder: pathlib.Path, process):
    """Until something of the output is on the disk."""
    for _ in range(2000):
        if any(p.name.startswith("m.plm") for p in folder.iterdir()) and process.poll() is None:
            return
        time.sleep(0.005)
    pytest.fail("the program wrote nothing, or was done too soon")


def train_text(name, count):
    """The first `count` characters of a set of training texts."""
    with gzip.open(data_path(f"train/{name}/data.jsonl.gz"), "rt", encoding="utf-8") as lines:
        out = ""
        for line in lines:
            out += json.loads(line)["text"] + "\n"
            if len(out) >= count:
                break
    return out[:count]


def test_rounding_for_texts_loses_less_on_others(run, tmp_path):
    """Calibrated on a few pages of books and encyclopedia, judged on news and sentences of other sources."""
    model = require_model("smollm2-135m")
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "en.txt").write_text(train_text("books_en", 40_000))
    (tmp_path / "calibration" / "zh.txt").write_text(train_text("wiki_zh", 12_000))
    nearest, rounded = tmp_path / "nearest.plm", tmp_path / "rounded.plm"
    flags = ["--requantize", "--head-type", "int8", "--json"]
    assert report(run("convert", model, "-o", nearest, *flags))["method"] == "rtn"
    made = report(run("convert", model, "-o", rounded, *flags, "--calibration", tmp_path / "calibration", timeout=600))
    assert made["method"] == "gptq" and made["bytes"] == pytest.approx(nearest.stat().st_size, abs=200)
    for text in ("wikitext2_en/valid.txt", "wiki_zh/gsd_dev.txt"):
        losses = [report(run("diff", model, path, data_path("calib/" + text), "--max-windows", "4",
                             "--json"))["overall"]["kl_mean"] for path in (nearest, rounded)]
        assert losses[1] < 0.85 * losses[0], (text, losses)


@pytest.mark.parametrize("text,expected", [("too short", "expected at least 256 tokens"), ("", "")])
def test_too_little_to_calibrate_with(run, tmp_path, config, text, expected):
    plm, out = tmp_path / "m.plm", tmp_path / "out.plm"
    report(run("new", "--config", config, "-o", plm, "--type", "f16", "--json"))
    (tmp_path / "text.txt").write_text(text)
    done = run("convert", plm, "-o", out, "--calibration", tmp_path / "text.txt")
    assert done.returncode == 1 and done.out == "" and done.err.count("\n") == 1
    assert "calibration" in done.err and expected in done.err
    assert not out.exists()
    done = run("convert", plm, "-o", out, "--calibration", tmp_path / "none.txt")
    assert done.returncode == 1 and "none.txt" in done.err


def test_a_size_decides_types(run, tmp_path, config):
    plm, out, text = tmp_path / "m.plm", tmp_path / "out.plm", tmp_path / "text.txt"
    report(run("new", "--config", config, "-o", plm, "--type", "f16", "--json"))
    text.write_text("What the model will read: letters, 12 numbers, 汉字。\n" * 200)
    made = report(run("convert", plm, "-o", out, "--calibration", text, "--target-mb", "0.4", "--json"))
    assert made["type"] == "mixed" and made["bytes"] == out.stat().st_size <= 400_000
    assert len([t for t in made["types"] if t["type"] != "F32"]) > 1
    for flags, expected in [(["--target-mb", "0.4"], "expected calibration texts"),
                            (["--target-mb", "0.01", "--calibration", text], "expected at least"),
                            (["--target-mb", "0.4", "--calibration", text, "--type", "int8"], "expected no type")]:
        done = run("convert", plm, "-o", tmp_path / "none.plm", *flags)
        assert done.returncode == 2 and expected in done.err and done.err.count("\n") == 1
        assert not (tmp_path / "none.plm").exists()
    assert run("convert", plm, "-o", out, "--target-mb", "-1").returncode == 2


def golden_arrays(name):
    """prompt -> (ids, logits after its last token) that Transformers computed with a tiny model."""
    expected = json.loads((GOLDENS / name / "expected.json").read_text())
    floats = np.fromfile(GOLDENS / name / "expected.bin", np.float32)
    for array in expected["arrays"]:
        if array["what"] == "logits":
            begin = array["offset"]
            yield expected["prompts"][array["prompt"]], floats[begin:begin + array["shape"][0]]


@pytest.mark.parametrize("form", ["hf", "model.gguf", "plm"])
@pytest.mark.parametrize("name", ["tiny_qwen3", "tiny_llama", "tiny_llama_untied", "tiny_llama3", "tiny_gemma3"])
def test_folders_are_models_of_transformers(run, tmp_path, name, form):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    source = GOLDENS / name / form
    if form == "plm":
        source = tmp_path / "m.plm"
        report(run("convert", GOLDENS / name / "hf", "-o", source, "--type", "f16", "--json"))
    out = tmp_path / "folder"
    if (name, form) == ("tiny_llama3", "model.gguf"):
        done = run("convert", source, "-o", f"{out}/")
        assert done.returncode == 1 and "rope_freqs.weight" in done.err and not out.exists()
        return
    made = report(run("convert", source, "-o", f"{out}/", "--json"))
    assert made["format"] == "safetensors" and made["verified"]
    assert made["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
    assert not any(loading.values()), loading
    for ids, logits in golden_arrays(name):
        with torch.no_grad():
            ours = model(torch.tensor([ids])).logits[0, -1].numpy()
        np.testing.assert_allclose(ours, logits, atol=2e-5 * float(np.abs(logits).max()), rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    theirs = transformers.AutoTokenizer.from_pretrained(GOLDENS / name / "hf")
    text = "The quick brown fox, 1234 times.\n今天天气很好。 café"
    assert tokenizer(text).input_ids == theirs(text).input_ids
    # And back: the same file as from the first form.
    report(run("convert", out, "-o", tmp_path / "back.plm", "--type", "f16", "--json"))
    report(run("convert", source, "-o", tmp_path / "direct.plm", "--type", "f16", "--json"))
    assert run("diff", tmp_path / "back.plm", tmp_path / "direct.plm", "-", "--ctx", "16", "--json",
               stdin=text.encode() * 20).returncode == 0
    found = report(run("diff", tmp_path / "back.plm", tmp_path / "direct.plm", "-", "--ctx", "16", "--json",
                       stdin=text.encode() * 20))
    assert found["overall"]["kl_max"] == 0


def test_quantized_weights_reach_transformers_exactly(run, tmp_path):
    """Codes become F32 values without loss, and come back to the same codes."""
    model = require_model("smollm2-135m")
    folder = tmp_path / "folder"
    made = report(run("convert", model, "-o", f"{folder}/", "--type", "f32", "--json"))
    assert all(t["exact"] for t in made["types"])
    import safetensors.numpy

    ours = safetensors.numpy.load_file(folder / "model.safetensors")
    theirs = values(model)
    assert len(ours) == len(theirs)
    for name, mine in [("model.embed_tokens.weight", "token_embd.weight"), ("model.norm.weight", "output_norm.weight"),
                       ("model.layers.7.mlp.down_proj.weight", "blk.7.ffn_down.weight")]:
        np.testing.assert_array_equal(ours[name], theirs[mine])


def test_a_folder_takes_nobodys_place(run, tmp_path, config):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("keep")
    done = run("convert", GOLDENS / "tiny_qwen3" / "hf", "-o", f"{taken}/")
    assert done.returncode == 2 and "empty folder" in done.err
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    (taken / "mine.txt").unlink()
    assert run("convert", GOLDENS / "tiny_qwen3" / "hf", "-o", f"{taken}/").returncode == 0
    assert (taken / "model.safetensors").exists()
    done = run("convert", GOLDENS / "tiny_qwen3" / "hf", "-o", f"{tmp_path}/other/", "--type", "int4")
    assert done.returncode == 2 and "f16, f32 for a folder" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "taken"]
