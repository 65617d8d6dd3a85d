"""pocketlm diff against numpy on models whose logits a table gives, and against what Transformers computed."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from conftest import BUILD_DIR, SOURCE_DIR, missing

GOLDENS = SOURCE_DIR / "tests" / "goldens"
TINY = GOLDENS / "tiny_llama"
WINDOW = 16


def report(done):
    assert done.returncode == 0, done.err
    assert done.err == ""
    assert done.out.count("\n") == 1
    return json.loads(done.stdout.decode("utf-8", "strict"))


@pytest.fixture
def table_model(tmp_path):
    """table_model(name, logits) -> a model file whose logits after byte i are logits[i], [256, 256]."""
    tool = BUILD_DIR / "tests" / "support" / "make_bigram_model"
    if not tool.exists():
        missing(f"program {tool}")

    def make(name, logits, tokens=()):
        spec = tmp_path / "spec.json"
        entries = [[int(i), int(j), float(logits[i, j])] for i, j in zip(*np.nonzero(logits))]
        spec.write_text(json.dumps({"logits": entries, "tokens": [{"text": text} for text in tokens]}))
        path = tmp_path / name
        subprocess.run([tool, spec, path], check=True, stdout=subprocess.DEVNULL)
        return path

    return make


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def windows_of(text):
    """(state before, token) of what is scored: the second half of every whole window, its first token aside."""
    pairs = []
    for begin in range(0, len(text) - WINDOW + 1, WINDOW):
        pairs += [(text[i - 1], text[i]) for i in range(begin + WINDOW // 2 + 1, begin + WINDOW)]
    return np.array(pairs)


def expected(a, b, pairs):
    p, q = log_softmax(a)[pairs[:, 0]], log_softmax(b)[pairs[:, 0]]
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    rows = np.arange(len(pairs))
    out = {"tokens": len(pairs), "bytes": len(pairs), "positions": len(pairs), "kl_mean": kl.mean(),
           "kl_p99": np.percentile(kl, 99), "kl_max": kl.max(),
           "top1_agreement": (p.argmax(axis=1) == q.argmax(axis=1)).mean()}
    for side, logs in (("a", p), ("b", q)):
        nll = -logs[rows, pairs[:, 1]].sum()
        out[side] = {"nll": nll, "perplexity": np.exp(nll / len(pairs)),
                     "bits_per_byte": nll / np.log(2) / len(pairs)}
    return out


def assert_figures(found, wanted):
    assert {key for key in found if key != "text"} == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-9), key


def random_logits(rng):
    # Bytes only, so that texts are one token a byte; rows of a few likely tokens.
    logits = np.zeros((256, 256), np.float32)
    for row in logits:
        likely = rng.integers(97, 123, 5)
        row[likely] = rng.normal(5, 2, 5)
    return logits


def test_equals_numpy_per_text_and_overall(run, table_model, tmp_path):
    rng = np.random.default_rng(1)
    a = random_logits(rng)
    b = np.where(a != 0, a + rng.normal(0, 0.7, a.shape), 0).astype(np.float32)
    models = [table_model("a.gguf", a), table_model("b.gguf", b)]
    texts, pairs = [], []
    for index, size in enumerate((200, 47, 16)):
        content = bytes(rng.integers(97, 123, size).tolist())
        texts.append(tmp_path / f"text {index}")
        texts[-1].write_bytes(content)
        pairs.append(windows_of(content))
    result = report(run("diff", *models, *texts, "--ctx", WINDOW, "--json"))
    assert (result["a"], result["b"]) == tuple(map(str, models))
    assert [entry["text"] for entry in result["texts"]] == list(map(str, texts))
    for entry, part in zip(result["texts"], pairs):
        assert_figures(entry, expected(a, b, part))
    assert_figures(result["overall"], expected(a, b, np.concatenate(pairs)))
    # Two windows of each; the text report has the same figures.
    limited = report(run("diff", *models, texts[0], "--ctx", WINDOW, "--max-windows", "2", "--json"))
    assert_figures(limited["overall"], expected(a, b, pairs[0][:WINDOW - 2]))
    done = run("diff", *models, *texts, "--ctx", WINDOW)
    lines = done.out.splitlines()
    assert len(lines) == 7 and lines[-1].endswith("all texts") and lines[-2].endswith("text 2")
    assert f"{result['overall']['kl_mean']:.6f}" in lines[-1]
    assert f"{result['overall']['b']['perplexity']:.4f}" in lines[-1]


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_llama_untied", "tiny_llama3", "tiny_gemma3"])
def test_perplexities_are_those_of_transformers(run, tmp_path, name):
    golden = json.loads((GOLDENS / name / "expected.json").read_text())["perplexity"]
    (tmp_path / "text").write_text(golden["text"])
    exact = ["--kv-k", "f32", "--kv-v", "f32"]
    models = [GOLDENS / name / "hf", GOLDENS / name / "model.gguf"]
    result = report(run("diff", *models, tmp_path / "text", "--all", "--json", *exact))["overall"]
    assert result["tokens"] == golden["all"]["tokens"]
    assert result["kl_max"] < 1e-6 and result["top1_agreement"] == 1
    for side in "ab":
        assert result[side]["nll"] == pytest.approx(golden["all"]["nll"], rel=1e-4)
    windows = report(run("diff", *models, tmp_path / "text", "--ctx", golden["windows"]["size"], "--json", *exact))
    assert windows["overall"]["a"]["nll"] == pytest.approx(golden["windows"]["nll"], rel=1e-4)


def test_other_keys_and_values_for_b(run, tmp_path):
    (tmp_path / "text").write_text("The kettle is on the stove and the water is hot. " * 4)
    model = GOLDENS / "tiny_qwen3" / "model.gguf"

    def mean(*flags):
        done = run("diff", model, model, tmp_path / "text", "--ctx", "32", "--json", "--kv-k", "f32", "--kv-v", "f32",
                   *flags)
        assert done.returncode == 0, done.err
        return json.loads(done.out)["overall"]["kl_mean"]

    assert mean() == 0
    assert 0 < mean("--kv-v-b", "int8") < mean("--kv-v-b", "int4")
    assert 0 < mean("--kv-k-b", "f16") < mean("--kv-k-b", "int8")


def test_other_tokens_are_an_error_that_tells_what_to_do(run, table_model, tmp_path):
    logits = np.zeros((256, 256), np.float32)
    (tmp_path / "text").write_text("a" * 40)
    models = [table_model("a.gguf", logits, ["kettle"]), table_model("b.gguf", logits, ["pot"])]
    done = run("diff", *models, tmp_path / "text", "--ctx", WINDOW)
    assert done.returncode == 1 and done.out == "" and done.err.count("\n") == 1
    assert "256 'kettle' and 256 'pot'" in done.err
    assert "perplexity, in bits per byte" in done.err


def test_errors_name_the_text(run, tmp_path):
    (tmp_path / "short").write_text("a few words")
    done = run("diff", TINY / "hf", TINY / "hf", tmp_path / "short")
    assert done.returncode == 1 and done.out == "" and done.err.count("\n") == 1
    assert "short: " in done.err and "at least one window of 512 tokens" in done.err
    done = run("diff", TINY / "hf", TINY / "hf", tmp_path / "none")
    assert done.returncode == 1 and "none" in done.err
    assert run("diff", TINY / "hf", TINY / "hf", "-", "--ctx", "16", stdin=b"a few words " * 9).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["a"], ["a", "b"], ["a", "b", "c", "--kv-k-b", "q8"],
                                       ["a", "b", "c", "--max-windows", "-1"], ["a", "b", "c", "--activations-b", "f16"]])
def test_wrong_usage(run, arguments):
    done = run("diff", *arguments)
    assert done.returncode == 2 and done.out == "" and done.err.count("\n") == 1


def test_activations_apart(run, tmp_path):
    """A packed model with float activations differs from itself with int8 ones, by little."""
    config = {"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 300,
              "max_position_embeddings": 256, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = tmp_path / "m.plm"
    assert run("new", "--config", tmp_path / "config.json", "-o", model).returncode == 0
    shutil.copy(tmp_path / "config.json", tmp_path / "text")
    flags = [model, model, tmp_path / "text", "--ctx", "32", "--json"]
    assert report(run("diff", *flags))["overall"]["kl_max"] == 0
    assert 0 < report(run("diff", *flags, "--activations", "f32", "--activations-b", "int8"))["overall"]["kl_mean"] < 0.01
