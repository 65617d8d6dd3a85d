"""pocketlm bench: the schema of its report, and what the figures of one report say about each other."""

import json
import os
import subprocess

import pytest

SHAPE = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 2048,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True,
}
SPREAD = {"median", "min", "max"}


@pytest.fixture(scope="module")
def model(tmp_path_factory, program):
    """A small model with random int4 weights, one file."""
    folder = tmp_path_factory.mktemp("bench")
    config = folder / "config.json"
    config.write_text(json.dumps(SHAPE), encoding="utf-8")
    path = folder / "tiny.plm"
    subprocess.run([program, "new", "--config", str(config), "--random-seed", "1", "-o", str(path)], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def bench(run, model, *flags):
    done = run("bench", model, "--json", "--repeat", "1", *flags)
    assert done.returncode == 0, done.err
    return json.loads(done.stdout.decode("utf-8"))


def check_spread(spread):
    assert SPREAD <= set(spread)
    assert 0 < spread["min"] <= spread["median"] <= spread["max"]


def test_report_follows_the_schema(run, model):
    report = bench(run, model, "-p", "32,64", "-n", "8", "-d", "0,256", "--threads", "1,2", "--profile")
    rows = report["results"]
    assert [(row["threads"], row["phase"], row["tokens"], row["depth"]) for row in rows] == [
        (threads, phase, tokens, depth) for threads in (1, 2)
        for phase, lengths in (("prefill", (32, 64)), ("decode", (8,))) for depth in (0, 256) for tokens in lengths]
    for row in rows:
        check_spread(row["tok_s"])
        assert row["ms"]["median"] == pytest.approx(row["tokens"] * 1e3 / row["tok_s"]["median"])
        assert 0 <= row["sampling_fraction"] <= 1
        assert 0 <= row["sync_fraction"] <= 1
        assert sum(op["share"] for op in row["profile"].values()) == pytest.approx(1)
    bandwidths = report["read_bandwidth"]
    assert [measured["threads"] for measured in bandwidths] == [1, 2]
    for measured in bandwidths:
        assert measured["best_bytes_s"] == max(measured["file_bytes_s"], measured["buffer_bytes_s"]) > 0
    assert report["read_bandwidth_bytes_s"] == bandwidths[0]["best_bytes_s"]
    assert report["file_bytes"] == os.path.getsize(model)
    assert report["cpu_variant"] and report["model_hash"] and report["cpu_model"]
    assert report["repeat"] == 1
    for key in ("load_ms", "first_token_ms", "warm_first_token_ms"):
        check_spread(report["startup"][key])
    assert report["startup"]["tokens_in"] == 16


def test_fraction_of_the_bandwidth_is_that_of_the_first_decode_row(run, model):
    report = bench(run, model, "-p", "0", "-n", "8", "-d", "0,1024", "--threads", "1")
    shallow, deep = report["results"]
    assert {shallow["phase"], deep["phase"]} == {"decode"}
    assert report["bandwidth_fraction"] == shallow["bandwidth_fraction"]
    for row in (shallow, deep):
        read = row["weight_bytes_per_token"] + row["kv_bytes_per_token"]
        expected = read * row["tok_s"]["median"] / report["read_bandwidth_bytes_s"]
        assert row["bandwidth_fraction"] == pytest.approx(expected)
    assert shallow["weight_bytes_per_token"] == deep["weight_bytes_per_token"] <= report["file_bytes"]
    # Two layers of two heads; keys and values of 32 codes and one 2-byte scale. On average 4.5 positions at depth 0.
    per_position = 2 * 2 * 2 * (32 + 2)
    assert shallow["kv_bytes_per_token"] == per_position * 9 // 2
    assert deep["kv_bytes_per_token"] - shallow["kv_bytes_per_token"] == per_position * 1024


def test_memory_is_that_of_1024_tokens_in_and_128_out_and_within_the_plan(run, model):
    report = bench(run, model, "-p", "16", "-n", "0", "--threads", "1")
    assert report["bandwidth_fraction"] is None  # nothing was decoded
    memory = report["memory"]
    assert (memory["tokens_in"], memory["tokens_out"]) == (1024, 128)
    assert (memory["kv_k_type"], memory["kv_v_type"]) == ("int8", "int8") == (report["kv_k"], report["kv_v"])
    plan = memory["memory_plan"]
    assert plan["total_bytes"] == plan["weights_bytes"] + plan["kv_bytes"] + plan["arena_bytes"]
    assert memory["peak_rss_bytes"] >= memory["anonymous_bytes"] > plan["kv_bytes"] > 0
    # Vocabulary, program and allocator take their share beside the plan, whatever the model.
    assert memory["anonymous_bytes"] <= plan["kv_bytes"] + plan["arena_bytes"] + (32 << 20)


def test_types_of_the_cache_change_what_a_token_reads(run, model):
    sizes = {}
    for name in ("f16", "int8", "int4"):
        report = bench(run, model, "-p", "0", "-n", "4", "-d", "64", "--threads", "1", "--kv-k", name, "--kv-v", name)
        assert (report["kv_k"], report["kv_v"]) == (name, name)
        sizes[name] = report["results"][0]["kv_bytes_per_token"]
    assert sizes["f16"] > sizes["int8"] > sizes["int4"] > 0


def test_text_names_every_row(run, model):
    done = run("bench", model, "-p", "16", "-n", "4", "--threads", "1", "--repeat", "1", "--profile")
    assert done.returncode == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith(("prefill", "decode"))] == [
        ["prefill", "16", "0", "1"], ["decode", "4", "0", "1"]]
    for start in ("model ", "machine ", "run ", "profile of decode", "read bandwidth", "load ", "memory of 1024",
                  "planned:"):
        assert any(line.startswith(start) for line in lines), start


def test_lengths_that_nobody_asked_for_give_way_to_the_context(run, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SHAPE | {"max_position_embeddings": 90}), encoding="utf-8")
    path = tmp_path / "short.plm"
    assert run("new", "--config", config, "-o", path).returncode == 0
    report = bench(run, path, "--threads", "1")
    assert [(row["phase"], row["tokens"]) for row in report["results"]] == [("prefill", 90), ("decode", 90)]
    assert (report["memory"]["tokens_in"], report["memory"]["tokens_out"]) == (80, 10)
    asked = run("bench", path, "-p", "91", "--json")
    assert asked.returncode == 1
    assert "expected at most 90" in asked.err and asked.err.count("\n") == 1


@pytest.mark.parametrize("flags", [
    ("-p", "12,"), ("-p", "-1"), ("-n", "x"), ("-d", "99999999999999999999"), ("--threads", "1,5000"),
    ("--repeat", "0"), ("--repeat", "1001"), ("-p", "0", "-n", "0"), ("--kv-k", "int3"), ("--activations", "f16"),
    ("--chunk", "5000")])
def test_wrong_values_are_wrong_usage(run, model, flags):
    done = run("bench", model, "--json", *flags)
    assert done.returncode == 2, done.err
    assert done.stdout == b""
    assert done.err.strip()


def test_a_missing_model_fails_in_one_line(run, tmp_path):
    done = run("bench", tmp_path / "no.plm", "--json")
    assert done.returncode == 1
    assert done.stdout == b"" and done.err.count("\n") == 1
