"""bench/peers: reading each tool's output, medians and ratios, the tables, the choice of builds. No peer is run."""

import json
import sys

import pytest
from conftest import SOURCE_DIR

sys.path.insert(0, str(SOURCE_DIR / "bench" / "peers"))

import engines  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
import run as run_peers  # noqa: E402
import setup_peers  # noqa: E402

RECORDED = SOURCE_DIR / "tests" / "python" / "peers_recorded"


def recorded(name, peak_rss_bytes=7_000_000):
    text = (RECORDED / name).read_text(encoding="utf-8")
    return measure.Run(text, wall_s=2.0, peak_rss_bytes=peak_rss_bytes, other_cores=0.0, disturbed=False)


PLAN = engines.Plan(prompts=(32, 64), decode=4, depths=(4096,), depth_tokens=8, long_prompt=64)


def test_llama_bench_rows_become_metrics():
    metrics = engines.parse_llama_bench(recorded("llama_bench.json"))
    rows = json.loads((RECORDED / "llama_bench.json").read_text())
    assert metrics == {
        "prefill 32": 6.973124,
        "prefill 64": rows[1]["avg_ts"],
        "decode 4": rows[2]["avg_ts"],
        "weight_bytes": 174200320,
    }
    assert len(rows) == 4  # the request of 16 in and 4 out is neither


def test_notes_before_the_rows_of_llama_bench_are_skipped():
    run = recorded("llama_bench.json")
    noted = measure.Run("a note [1]\n" + run.output, 1.0, 1, 0.0, False)
    assert engines.parse_llama_bench(noted) == engines.parse_llama_bench(run)


def test_our_report_becomes_metrics():
    metrics = engines.parse_ours(recorded("pocketlm.json"))
    report_json = json.loads((RECORDED / "pocketlm.json").read_text())
    assert metrics["prefill 32"] == report_json["results"][0]["tok_s"]["median"]
    assert metrics["decode 4 @ 100"] == report_json["results"][5]["tok_s"]["median"]
    assert metrics["peak_rss_bytes"] == report_json["memory"]["peak_rss_bytes"]
    assert metrics["first_token_ms"] == report_json["startup"]["first_token_ms"]["median"]
    assert metrics["read_bandwidth_bytes_s"] == report_json["read_bandwidth_bytes_s"]
    assert metrics["bandwidth_fraction"] == report_json["results"][4]["bandwidth_fraction"]


def test_probe_and_python_peers_become_metrics():
    assert engines.parse_llama_depth(recorded("llama_probe_depth.json")) == {"decode 8 @ 4096": 1.9254}
    metrics = engines.parse_last_line(recorded("openvino.txt"))
    assert (metrics["prefill 64"], metrics["peak_rss_bytes"]) == (274.2925005664966, 7_000_000)


def engine_of(name, kv="int8", **more):
    programs = {"pocketlm": "pocketlm", "llama-bench": "llama-bench", "llama_probe": "llama_probe", "python": "python"}
    return engines.Engine(name, name, "pocket", "model", kv, programs, **more)


def test_commands_say_threads_lengths_and_cache():
    (ours, _), = engine_of("pocketlm").commands("depth", PLAN, 2)
    assert ours[:3] == ["pocketlm", "bench", "model"]
    assert "-p 0 -n 8 -d 4096" in " ".join(ours) and "--kv-k int8" in " ".join(ours)
    (llama, _), = engine_of("llama.cpp").commands("speed", PLAN, 1)
    assert "-t 1 -fa 1" in " ".join(llama) and "-ctk q8_0 -ctv q8_0 -p 32,64 -n 4" in " ".join(llama)
    (probe, _), = engine_of("llama.cpp", "f16").commands("depth", PLAN, 2)
    assert probe == ["llama_probe", "model", "2", "depth", "f16", "4096", "8"]
    assert engine_of("llama.cpp", tasks=("speed",)).commands("depth", PLAN, 2) == []
    assert engine_of("openvino").commands("memory", PLAN, 2) == []


def record(engine, value, threads=2, number=1, metric="decode 4", **more):
    fields = {"model": "pocket", "engine": engine, "threads": threads, "round": number, "task": "speed",
              "other_cores": 0.02, "disturbed": False, "metrics": {metric: value}}
    return {**fields, **more}


def test_medians_and_ratios():
    records = [record("ours", value) for value in (100, 140, 90)] + [record("slow", 50), record("fast", 80)]
    summaries = report.summarize(records)
    rows = {label: row for (_, _, label), row in summaries.items()}
    assert rows["ours"]["decode 4"] == {"median": 100, "min": 90, "max": 140, "runs": 3}
    assert report.ratio(rows["ours"], rows["slow"], "decode 4") == 2.0
    assert report.ratio(rows["ours"], rows["slow"], "prefill 32") is None
    assert report.ratio(rows["ours"], {"decode 4": report.spread([0])}, "decode 4") is None
    assert report.best_peer({"slow": rows["slow"], "fast": rows["fast"]}, "decode 4") == "fast"
    assert report.best_peer(rows, "load_ms") is None


def test_threads_and_models_stay_apart():
    summaries = report.summarize([record("ours", 1), record("ours", 2, threads=1), record("ours", 3, model="other")])
    assert [row["decode 4"]["median"] for row in summaries.values()] == [1, 2, 3]


def result_of(records):
    kinds = {"ours": (True, "int8"), "fast": (False, "f16"), "slow": (False, "int8")}
    return {
        "facts": {"CPU": "a CPU"},
        "models": {"pocket": "Pocket"},
        "engines": {label: {"ours": ours, "kv": kv} for label, (ours, kv) in kinds.items()},
        "records": records,
        "failures": ["MNN: status 1"],
    }


def test_markdown_has_rates_shares_and_ratios():
    records = [record("ours", value) for value in (100, 140, 90)]
    records += [record("ours", 1e9, metric="read_bandwidth_bytes_s"), record("ours", 0.9, metric="bandwidth_fraction")]
    records += [record("fast", 80), record("fast", 5e6, metric="weight_bytes"), record("slow", 50)]
    records += [record("ours", 30e6, metric="peak_rss_bytes"), record("fast", 60e6, metric="peak_rss_bytes")]
    text = report.markdown(result_of(records), PLAN)
    assert "## Pocket, 2 threads" in text and "Read bandwidth 1.0 GB/s." in text
    assert "| ours | 100 (90.0–140) | 90 % | – | – | 30.0 |" in text
    assert "| fast | 80.0 | 40 % | – | – | 60.0 |" in text
    assert "| ours ÷ slow | 2.00 | – |" in text and "| ours ÷ fast | 1.25 | 0.50 |" in text
    assert "| **ours ÷ best peer** | **1.25** | **0.50** |" in text
    assert "- MNN: status 1" in text


def test_long_contexts_are_compared_with_the_same_cache_only():
    metric = "decode 8 @ 4096"
    records = [record("ours", 40, metric=metric), record("fast", 30, metric=metric), record("slow", 10, metric=metric)]
    text = report.markdown(result_of(records), PLAN)
    assert "Pocket, 2 threads: long contexts" in text and "| fast | 30.0 |" in text
    assert "ours ÷ slow | 4.00" in text and "ours ÷ fast" not in text


def test_disturbance_is_told():
    records = [record("ours", 1), record("fast", 1, disturbed=True, other_cores=0.7)]
    assert "at most 0.70 cores" in report.disturbed_note(records)
    assert "1 of 2 runs stayed disturbed" in report.disturbed_note(records)


def test_a_run_knows_its_output_memory_and_failure():
    run = measure.run_once([sys.executable, "-c", "import os; b = bytearray(90 << 20); print(os.environ['A'])"], {"A": "x"})
    assert run.output == "x\n" and 90 << 20 < run.peak_rss_bytes < 400 << 20 and run.wall_s > 0
    with pytest.raises(measure.RunError, match="status 3\nlast words"):
        measure.run_once([sys.executable, "-c", "import sys; print('last words', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(measure.RunError, match="signal 4"):
        measure.run_once([sys.executable, "-c", "import os; os.kill(os.getpid(), 4)"])
    with pytest.raises(measure.RunError, match="signal 9"):
        measure.run_once([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_busy_time_leaves_out_idle_and_waiting():
    text = "cpu  100 20 30 99999 88888 1 2 7 50 60\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    assert measure.busy_seconds(text) == pytest.approx(160 / measure.os.sysconf("SC_CLK_TCK"))


def test_disturbed_runs_are_repeated_and_counted(monkeypatch):
    runs = iter([measure.Run(str(i), 1.0, 1, 0.5, disturbed=i < 2) for i in range(4)])
    monkeypatch.setattr(measure, "run_once", lambda command, env: next(runs))
    assert measure.run_undisturbed(["x"], note=lambda text: None).output == "2"
    assert measure.run_undisturbed(["x"], note=lambda text: None).output == "3"


def test_builds_follow_the_flags_of_the_cpu():
    zen3 = setup_peers.ggml_variants({"avx", "avx2", "fma", "f16c", "bmi2"}, "x86_64")
    assert list(zen3) == ["avx2"] and "-DGGML_AVX512=OFF" in zen3["avx2"] and "-DGGML_FMA=ON" in zen3["avx2"]
    flags = {"avx", "avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "amx_int8"}
    wide = setup_peers.ggml_variants(flags, "x86_64")
    assert list(wide) == ["amx", "avx512", "avx2"]
    assert "-DGGML_AMX_INT8=ON" in wide["amx"] and "-DGGML_AMX_BF16=OFF" in wide["amx"]
    assert "-DGGML_AMX_INT8=OFF" in wide["avx512"] and "-DGGML_AVX512_VNNI=ON" in wide["avx512"]
    assert setup_peers.ggml_variants(flags, "aarch64") == {"native": ["-DGGML_NATIVE=ON"]}
    assert setup_peers.chosen_variants(wide, "best") == ["amx", "avx512"]
    assert setup_peers.chosen_variants(wide, "avx2") == ["avx2"]
    assert setup_peers.chosen_variants(zen3, "best") == ["avx2"]
    with pytest.raises(setup_peers.SetupError, match="avx512"):
        setup_peers.chosen_variants(zen3, "avx512")


def test_a_step_is_done_once_and_again_when_its_stamp_differs(tmp_path):
    made = []
    for text in ("a", "a", "b"):
        setup_peers.stamped(tmp_path / "step", text, lambda: made.append(1))
    assert len(made) == 2


def test_requirements_are_pinned_with_hashes():
    for name in ("llama-cpp-python", "ik-llama-cpp-python"):
        assert "--hash=sha256:" in setup_peers.requirement(name)


def test_flags_of_the_command():
    args = run_peers.parse_args(["--quick", "--threads", "2,1", "--models", "pocket", "--with", "ik"])
    assert (args.rounds, args.threads, args.models, args.extra) == (2, [2], ["pocket"], {"ik"})
    for wrong in (["--models", "none"], ["--with", "none"], ["--threads", "x"], ["--threads", "0"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            run_peers.parse_args(wrong)


def test_an_engine_that_fails_is_named_and_not_asked_again():
    args = run_peers.parse_args(["--tiny", "--models", "pocket"])
    failures = []
    harness = run_peers.Harness(args, failures)
    broken = engines.Engine("llama.cpp", "broken", "pocket", "model", "f16", {"llama-bench": "false"})
    harness.run(broken, "speed", 2, 1)
    harness.run(broken, "speed", 2, 2)
    assert len(failures) == 1 and "broken, speed" in failures[0] and harness.records == []
