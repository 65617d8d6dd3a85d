"""pocketlm decide: against Transformers, the report, what is refused."""

import json
import time

import numpy as np
import pytest

from conftest import SOURCE_DIR, require_model

GOLDENS = SOURCE_DIR / "tests" / "goldens"
TEXT = "Who makes wooden doors?"
LABELS = ["car", "carpet", "carpenter", "a much longer option"]


def report(done):
    assert done.returncode == 0, done.err
    assert done.err == ""
    return json.loads(done.stdout.decode("utf-8", "strict"))


def choices(labels):
    return [part for label in labels for part in ("--choice", label)]


def transformers_scores(folder, prompt, options):
    """ln p of each option after the prompt, every option run alone."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer(prompt + option).input_ids for option in options]
    common = 0
    while all(common + 1 < len(ids) and ids[common] == rows[0][common] for ids in rows):
        common += 1
    scores = []
    for ids in rows:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()[:, :len(tokenizer)]
        logp = torch.log_softmax(logits, -1)
        scores.append(sum(float(logp[i - 1, ids[i]]) for i in range(common, len(ids))))
    return np.array(scores)


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_gemma3"])
def test_probabilities_are_those_of_transformers(run, name):
    folder = GOLDENS / name / "hf"
    options = [f" {label}\n" for label in LABELS]
    scores = [transformers_scores(folder, f"Text: {text}\nQuestion: Which one?\nAnswer:", options) for text in (TEXT, "N/A")]
    for flags, expected in [(["--no-prior"], scores[0]), ([], scores[0] - scores[1])]:
        found = report(run("decide", folder, "--raw", "--text", TEXT, "--question", "Which one?", *choices(LABELS),
                           "--kv-k", "f32", "--kv-v", "f32", *flags, "--json"))
        (answer,) = found["answers"]
        weights = np.exp(expected - expected.max())
        np.testing.assert_allclose(list(answer["probabilities"].values()), weights / weights.sum(), rtol=2e-4)
        assert answer["mass"] == pytest.approx(np.exp(scores[0]).sum(), rel=2e-4)
        assert answer["choice"] == LABELS[int(expected.argmax())]
        assert list(answer["probabilities"]) == LABELS


def test_a_real_model_chooses(run):
    model = require_model("gemma3-270m")
    found = report(run("decide", model, "--text", "My parcel has not come.", *choices(["refund", "delivery", "other"]), "--json"))
    assert found["answers"][0]["choice"] == "delivery"
    assert sum(found["answers"][0]["probabilities"].values()) == pytest.approx(1)
    found = report(run("decide", model, "--text", "这部手机很好用，我很喜欢！", "--question", "评价是好评还是差评？",
                       *choices(["好评", "差评"]), "--json"))
    assert found["answers"][0]["choice"] == "好评"


def test_many_labels_cost_little_more_than_the_text(run):
    """77 labels in one pass: the tokens computed are those of the text and of the distinct beginnings."""
    folder = GOLDENS / "tiny_qwen3" / "hf"
    labels = [f"{verb} {noun} {n}" for verb in ("change", "lost", "find") for noun in ("card", "pin") for n in range(13)][:77]
    flags = ["decide", folder, "--no-prior", "--text", "word " * 60, "--json"]
    few, many = report(run(*flags, *choices(labels[:2]))), report(run(*flags, *choices(labels)))
    assert len(many["answers"][0]["probabilities"]) == 77
    assert few["tokens_in"] < many["tokens_in"] < few["tokens_in"] + 77 * 12
    assert many["time_ms"] < 5000


def test_a_request_with_several_questions(run, tmp_path):
    request = {"text": "Great.", "abstain_below": 1, "questions": [
        {"choices": ["good", {"label": "bad", "text": "not good"}]}, {"type": "boolean", "question": "Praise?"},
        {"type": "score", "question": "How happy?", "min": 1, "max": 3}]}
    (tmp_path / "request.json").write_text(json.dumps(request))
    folder = GOLDENS / "tiny_llama" / "hf"
    found = report(run("decide", folder, "--request", tmp_path / "request.json", "--json"))
    assert [list(a["probabilities"]) for a in found["answers"]] == [["good", "bad"], ["true", "false"], ["1", "2", "3"]]
    assert all(a["abstained"] for a in found["answers"]) and 1 <= found["answers"][2]["score"] <= 3
    shown = run("decide", folder, "--request", tmp_path / "request.json")
    assert shown.returncode == 0 and "Praise?" in shown.out and "(not sure enough)" in shown.out and "mean" in shown.out
    same = report(run("decide", folder, "--text", "Great.", "--choice", "good", "--choice", "bad=not good", "--boolean", "Praise?",
                      "--score", "How happy?", "--max", "3", "--abstain", "1", "--json"))
    assert [a["probabilities"] for a in same["answers"]] == [a["probabilities"] for a in found["answers"]]


@pytest.mark.parametrize("flags,expected", [
    ([], "expected --choice, --boolean, --score or --request"),
    (["--choice", "a"], "expected 2 to 200 options, got 1"),
    (choices(["a", "a"]), "options that differ"),
    (choices(["a", " "]), "an option with a text"),
    (["--score", "q", "--min", "5", "--max", "1"], "a scale of 2 to 200"),
    ([*choices(["a", "b"]), "--abstain", "2"], "--abstain"),
    (["-f", "x", "--request", "y"], "--request"),
])
def test_wrong_usage(run, flags, expected):
    text = [] if "-f" in flags else ["--text", "t"]
    done = run("decide", GOLDENS / "tiny_llama" / "hf", *text, *flags)
    assert done.returncode == 2 and done.out == "" and done.err.count("\n") == 1
    assert expected in done.err


def test_failures_are_errors_of_one_line(run, tmp_path):
    folder = GOLDENS / "tiny_llama" / "hf"
    (tmp_path / "broken.json").write_text("{")
    for flags in (["--request", tmp_path / "broken.json"], ["--request", tmp_path / "none.json"],
                  ["--text", "x " * 5000, *choices(["a", "b"])]):
        start = time.monotonic()
        done = run("decide", folder, *flags)
        assert done.returncode == 1 and done.out == "" and done.err.count("\n") == 1, done.err
        assert time.monotonic() - start < 30
