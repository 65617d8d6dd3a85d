"""The types of cached keys and values, and of activations, in every command that computes; the hash of a model."""

import json
import pathlib

import pytest

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
TINY = GOLDENS / "tiny_qwen3" / "model.gguf"


def report(done):
    assert done.returncode == 0, done.err
    assert done.out.count("\n") == 1
    return json.loads(done.stdout.decode("utf-8", "strict"))


@pytest.mark.parametrize("keys, values", [("f32", "f16"), ("f16", "int8"), ("int8", "int4"), ("int4", "int4")])
def test_kv_d3_keys_in_4_bits_are_warned_of(run, keys, values):
    done = run("run", TINY, "--raw", "-p", "a b", "-n", "2", "--json", "--kv-k", keys, "--kv-v", values)
    assert report(done)["tokens_out"] == 2
    assert done.err.count("\n") == (1 if keys == "int4" else 0)
    assert ("int4" in done.err) == (keys == "int4")


def test_bench_warns_once_for_all_its_sessions(run):
    done = run("bench", TINY, "-p", "4", "-n", "2", "--threads", "1,2", "--repeat", "1", "--kv-k", "int4", "--json")
    result = report(done)
    assert (result["kv_k"], result["kv_v"]) == ("int4", "int8")
    assert done.err.count("\n") == 1


def test_int8_is_the_default(run):
    plans = {kind: report(run("inspect", TINY, "--json", *flags))["memory_plan"]
             for kind, flags in [("default", [])] + [(kind, ["--kv-k", kind, "--kv-v", kind])
                                                     for kind in ("f32", "f16", "int8", "int4")]}
    assert plans["default"] == plans["int8"]
    sizes = [plans[kind]["kv_bytes"] for kind in ("f32", "f16", "int8", "int4")]
    assert sizes == sorted(set(sizes), reverse=True)
    assert plans["int4"]["kv_k_type"] == plans["int4"]["kv_v_type"] == "int4"


@pytest.mark.parametrize("flags", [["--kv-k", "int8", "--kv-v", "int4"], ["--activations", "f32"]])
def test_perplexity_takes_the_flags(run, tmp_path, flags):
    (tmp_path / "text").write_text("a b c d e " * 60)
    assert report(run("perplexity", TINY, tmp_path / "text", "--ctx", "32", "--json", *flags))["tokens"] > 0


@pytest.mark.parametrize("command", [["run", TINY, "-p", "a"], ["chat", TINY], ["perplexity", TINY, "x"],
                                     ["bench", TINY]])
@pytest.mark.parametrize("flags", [["--kv-k", "q8_0"], ["--kv-v", "int2"], ["--activations", "int4"]])
def test_unknown_types_are_wrong_usage(run, command, flags):
    done = run(*command, *flags)
    assert done.returncode == 2 and done.err.count("\n") == 1 and done.out == ""


def test_the_same_weights_have_the_same_hash(run, tmp_path):
    copy, changed = tmp_path / "copy.gguf", tmp_path / "changed.gguf"
    copy.write_bytes(TINY.read_bytes())
    changed.write_bytes(TINY.read_bytes()[:-1] + bytes([TINY.read_bytes()[-1] ^ 1]))
    folder = GOLDENS / "tiny_llama_untied" / "hf"
    reports = [report(run("bench", path, "-p", "4", "-n", "0", "--repeat", "1", "--json"))
               for path in (TINY, copy, changed, folder)]
    hashes = [result["model_hash"] for result in reports]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
    assert reports[3]["file_bytes"] == sum(shard.stat().st_size for shard in folder.glob("*.safetensors"))
