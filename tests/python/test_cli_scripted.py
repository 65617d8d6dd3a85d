"""The program on model files that say what a script tells them (tests/tools/make_bigram_model.cc)."""

import json
import subprocess

import pytest

from conftest import BUILD_DIR, missing

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture
def scripted(tmp_path):
    """scripted(texts) -> the path of a model that answers "x" with these texts, one token each, and ends."""
    tool = BUILD_DIR / "tests" / "support" / "make_bigram_model"
    if not tool.exists():
        missing(f"program {tool}")

    def make(texts, vocabulary="byte_level"):
        spec = tmp_path / "spec.json"
        tokens = [{"text": "<|im_end|>", "control": True}]
        script = {"from": "x", "texts": texts, "then": "<|im_end|>"}
        spec.write_text(json.dumps({"vocabulary": vocabulary, "tokens": tokens, "eos": "<|im_end|>",
                                    "scripts": [script]}), encoding="utf-8")
        path = tmp_path / "scripted.gguf"
        subprocess.run([tool, spec, path], check=True, stdout=subprocess.DEVNULL)
        return path

    return make


def answers(run, model, *flags):
    """The answer to "x" as it streams, and the report; both must be UTF-8 and say the same."""
    streamed = run("run", model, "--raw", "-p", "x", *flags)
    assert streamed.returncode == 0, streamed.err
    report = run("run", model, "--raw", "-p", "x", "--json", *flags)
    assert report.returncode == 0, report.err
    report = json.loads(report.stdout.decode("utf-8"))
    text = streamed.stdout.decode("utf-8")
    assert text.removesuffix("\n") == report["text"].removesuffix("\n")
    return report


@pytest.mark.parametrize("vocabulary", ["byte_level", "sentencepiece"])
def test_str_d1_characters_over_several_tokens(run, scripted, vocabulary):
    model = scripted(list("🦙歪é".encode()), vocabulary)
    assert answers(run, model)["text"] == "🦙歪é"


def test_str_d2_stop_text_over_several_tokens(run, scripted):
    model = scripted(["red", "gre", "en", " blu", "e", " w"])
    report = answers(run, model, "--stop", "green blue")
    assert report["text"] == "red"
    assert report["finish_reason"] == "stop"


@pytest.mark.parametrize("vocabulary", ["byte_level", "sentencepiece"])
def test_str_d3_malformed_bytes_are_valid_json(run, scripted, vocabulary):
    assert answers(run, scripted([0xC3, "("], vocabulary))["text"] == REPLACEMENT + "("
    assert answers(run, scripted([0xE6, 0xAD], vocabulary))["text"] == REPLACEMENT


def test_control_characters_are_escaped_in_json(run, scripted):
    assert answers(run, scripted([0x00, 0x1B, "\"", "\\", 0x7F]))["text"] == "\0\x1b\"\\\x7f"
