"""The command line itself: help, version, exit statuses, one-line errors, model lookup."""

import json
import pathlib
import shutil

import pytest

COMMANDS = ["pull", "run", "chat", "tokenize", "perplexity", "diff", "bench", "inspect", "prune-vocab"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run, command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"Example:\n  pocketlm {command}" in done.out
    assert done.err == ""


def test_program_help_lists_every_command(run):
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.out for command in COMMANDS)
    assert "Example:" in done.out


def test_version(run):
    done = run("--version")
    assert done.returncode == 0
    assert done.out.startswith("pocketlm ") and done.out.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    [],
    ["bogus"],
    ["--bogus"],
    ["run"],
    ["run", "x"],
    ["run", "x", "-p", "a", "-f", "b"],
    ["run", "x", "-p", "a", "--temp", "nan"],
    ["run", "x", "-p", "a", "--temp", "-1"],
    ["run", "x", "-p", "a", "--top-p", "1.5"],
    ["run", "x", "-p", "a", "--repeat-penalty", "0"],
    ["run", "x", "-p", "a", "--seed", "-1"],
    ["run", "x", "-p", "a", "--seed", "18446744073709551616"],
    ["run", "x", "-p", "a", "-n", "-2"],
    ["run", "x", "-p", "a", "--chunk", "0"],
    ["run", "x", "-p", "a", "--kv-k", "int3"],
    ["run", "x", "-p", "a", "--logit-bias", "5"],
    ["run", "x", "-p", "a", "--logit-bias", "a=1"],
    ["run", "x", "-p", "a", "--logit-bias", "1=nan"],
    ["run", "x", "-p", "a", "--template-vars", "[1]"],
    ["run", "x", "-p", "a", "--raw", "--system", "s"],
    ["run", "x", "-p", "a", "--raw", "--template-vars", "{}"],
    ["run", "x", "-p", "a", "--unknown"],
    ["run", "x", "y", "-p", "a"],
    ["chat"],
    ["chat", "x", "-p", "a"],
    ["tokenize", "x"],
    ["tokenize", "x", "--ids", "1,a"],
    ["tokenize", "x", "--ids", "-1"],
    ["tokenize", "x", "--ids", "1", "-p", "a"],
    ["perplexity", "x"],
    ["perplexity", "x", "y", "--max-windows", "-1"],
    ["inspect"],
    ["pull", "x", "y"],
    ["pull", "smollm2-135m", "--sha256", "12"],
    ["pull", "smollm2-135m", "--name", "../x"],
    ["pull", "hf:onlyone"],
    ["pull", "hf:a/../b"],
    ["pull", "hf:a/b/../../c.gguf"],
    ["pull", "ftp://host/file.gguf"],
    ["pull", "https://host/file.zip"],
    ["pull", "https://host/..%5cfile.gguf"],
    ["pull", "https://host/.gguf"],
    ["pull", "http://example.invalid/file.gguf"],
])
def test_wrong_usage_is_status_2_and_one_line(run, arguments):
    done = run(*arguments)
    assert done.returncode == 2, done.err
    assert done.err.startswith("pocketlm: ")
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_messages_show_limits_in_full_and_wrong_values_cut(run):
    assert "from 0 to 16777216, got" in run("run", "x", "-p", "a", "--ctx", "-1").err
    assert len(run("run", "x", "-p", "a", "--template-vars", "[" * 50_000).err) < 500


def test_unknown_command_is_named(run):
    assert "bogus" in run("bogus").err


@pytest.mark.parametrize("command", [
    ["run", "{}", "-p", "a"], ["chat", "{}"], ["tokenize", "{}", "-p", "a"], ["inspect", "{}"]])
def test_unknown_model_is_status_1_and_says_what_to_do(run, command):
    done = run(*[word.format("no-such-model") for word in command])
    assert done.returncode == 1
    assert "no-such-model" in done.err and "pull" in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m", "hf:some/repo"])
def test_model_that_pull_knows_gets_the_advice_to_pull_it(run, name):
    done = run("run", name, "-p", "a")
    assert done.returncode == 1
    assert f"`pocketlm pull {name}`" in done.err


def test_names_do_not_leave_the_cache(run, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    done = run("inspect", "../secret", cwd=str(tmp_path / "home"))
    assert done.returncode == 1
    assert "got nothing there" in done.err


def _lookup(run, name, **keywords):
    """What `inspect` opens for a name, by its error message about the broken file there."""
    done = run("inspect", name, **keywords)
    assert done.returncode == 1
    return done.err


def test_lookup_order_is_path_then_models_then_cache(run, tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    (work / "models").mkdir(parents=True)
    home.mkdir()
    (home / "toy.gguf").write_bytes(b"broken")
    assert str(home / "toy.gguf") in _lookup(run, "toy", cwd=work)
    (work / "models" / "toy.gguf").write_bytes(b"broken")
    assert "models/toy.gguf" in _lookup(run, "toy", cwd=work)
    (work / "toy").write_bytes(b"broken")
    assert "models/toy.gguf" not in _lookup(run, "toy", cwd=work)


def test_cache_is_xdg_then_home_without_pocketlm_home(run, tmp_path):
    xdg, user = tmp_path / "xdg", tmp_path / "user"
    (xdg / "pocketlm").mkdir(parents=True)
    (user / ".cache" / "pocketlm").mkdir(parents=True)
    for folder in (xdg / "pocketlm", user / ".cache" / "pocketlm"):
        (folder / "toy.gguf").write_bytes(b"broken")
    env = {"POCKETLM_HOME": None, "XDG_CACHE_HOME": xdg, "HOME": user}
    assert str(xdg / "pocketlm") in _lookup(run, "toy", env=env)
    env["XDG_CACHE_HOME"] = None
    assert str(user / ".cache") in _lookup(run, "toy", env=env)


def test_fs_d1_non_ascii_paths_reach_the_library(run, tmp_path):
    folder = tmp_path / "Modèle_試験_Ключ"
    folder.mkdir()
    (folder / "broken.gguf").write_bytes(b"broken")
    done = run("inspect", folder / "broken.gguf")
    assert done.returncode == 1
    assert "Modèle_試験_Ключ" in done.err

    goldens = pathlib.Path(__file__).resolve().parents[1] / "goldens"
    shutil.copy(goldens / "tiny_qwen3" / "model.gguf", folder / "модель 模型.gguf")
    done = run("run", folder / "модель 模型.gguf", "--raw", "-p", "a b", "-n", "2", "--json")
    assert done.returncode == 0, done.err
    assert json.loads(done.out)["tokens_out"] == 2


def test_unreadable_prompt_file(run, tmp_path):
    done = run("tokenize", tmp_path, "-f", tmp_path / "none.txt")
    assert done.returncode == 1
    assert "none.txt" in done.err and done.err.count("\n") == 1


def test_tools_file_must_hold_an_array(run, tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps({"a": 1}))
    done = run("run", "x", "-p", "a", "--tools", tmp_path / "tools.json")
    assert done.returncode == 1
    assert "tools.json" in done.err and "array" in done.err

