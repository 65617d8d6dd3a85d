"""The program on old CPUs (CPU-D1, CPU-D2), which qemu-user emulates: it starts, takes the kernels that they have,
and answers as it does here."""

import json
import pathlib
import platform
import shutil
import subprocess

import pytest
from conftest import environment_for, missing

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
OLD_CPUS = ["Nehalem", "Haswell,-avx2"]  # no AVX at all; FMA, but no AVX2
ALL_CPUS = [*OLD_CPUS, "max"]  # AVX2, as the emulator has it

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the program is not for x86-64")


@pytest.fixture
def emulate(program, tmp_path):
    """emulate(cpu, *arguments, env={...}) -> CompletedProcess; the program on an emulated CPU, None for this one."""

    def call(cpu, *arguments, env=None):
        if cpu is not None and EMULATOR is None:
            missing("qemu-x86_64-static")
        prefix = [] if cpu is None else [EMULATOR, "-cpu", cpu]
        return subprocess.run([*prefix, program, *map(str, arguments)], env=environment_for(tmp_path / "home", env),
                              timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)

    return call


def _answer(emulate, cpu, model):
    # A high temperature makes the answer depend on all logits, not on the likeliest token alone.
    done = emulate(cpu, "run", GOLDENS / model, "--raw", "-p", "hello world", "-n", 24, "--temp", 50, "--seed", 5,
                   "--ignore-eos", "--json")
    assert done.returncode == 0, f"{cpu}: {done.stderr}"
    report = json.loads(done.stdout)
    assert report["tokens_out"] == 24
    return report["text"]


@pytest.mark.parametrize("cpu", ALL_CPUS)
def test_cpu_d2_starts(emulate, cpu):
    done = emulate(cpu, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == emulate(None, "--version").stdout


@pytest.mark.parametrize("model", ["tiny_qwen3/model.gguf", "tiny_gemma3/model.gguf", "plm/version_1_0.plm"])
def test_cpu_d1_answers_are_the_same(emulate, model):
    here = _answer(emulate, None, model)
    assert len(set(here)) > 3
    for cpu in ALL_CPUS:
        assert _answer(emulate, cpu, model) == here, cpu


@pytest.mark.parametrize("cpu", OLD_CPUS)
def test_cpu_d1_instructions_that_are_missing_are_refused(emulate, cpu):
    done = emulate(cpu, "run", GOLDENS / "tiny_qwen3/model.gguf", "--raw", "-p", "a", "-n", 1,
                   env={"POCKETLM_CPU": "avx2"})
    assert done.returncode == 1
    assert "POCKETLM_CPU: avx2 is not available on this machine, which has reference" in done.stderr
