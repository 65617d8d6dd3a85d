"""Downloads and builds the peers, each once, in a folder of its own. pip brings everything, as it is configured.

A finished step leaves a stamp with the versions and flags it was made of; another stamp makes it anew.
"""

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent

# CMake options of ggml by the CPU's flag that they need (/proc/cpuinfo).
AVX2_OPTIONS = {"avx2": "GGML_AVX2", "fma": "GGML_FMA", "f16c": "GGML_F16C", "bmi2": "GGML_BMI2", "avx": "GGML_AVX"}
AVX512_OPTIONS = {
    "avx_vnni": "GGML_AVX_VNNI",
    "avx512f": "GGML_AVX512",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
    "avx512vbmi": "GGML_AVX512_VBMI",
}
AMX_OPTIONS = {"amx_tile": "GGML_AMX_TILE", "amx_int8": "GGML_AMX_INT8", "amx_bf16": "GGML_AMX_BF16"}

LLAMA_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
]


class SetupError(Exception):
    """A peer could not be set up."""


def cpu_flags():
    """The CPU's flags, empty where Linux does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.split(":")[0].strip() in ("flags", "Features"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def ggml_variants(flags, machine):
    """{name: CMake options} of the builds that this CPU may run, the widest first; each is tried before it counts.

    The widest is not always the fastest at everything, so a CPU with AMX gets a build with and one without it.
    """
    if machine not in ("x86_64", "AMD64"):
        return {"native": ["-DGGML_NATIVE=ON"]}
    known = {**AVX2_OPTIONS, **AVX512_OPTIONS, **AMX_OPTIONS}

    def options(wanted):
        present = [name for flag, name in wanted.items() if flag in flags]
        absent = [name for name in known.values() if name not in present]
        return ["-DGGML_NATIVE=OFF"] + [f"-D{n}=ON" for n in present] + [f"-D{n}=OFF" for n in absent]

    variants = {}
    if {"amx_tile", "amx_int8", "avx512_vnni"} <= flags:
        variants["amx"] = options(known)
    if "avx512f" in flags or "avx_vnni" in flags:
        variants["avx512" if "avx512f" in flags else "avxvnni"] = options({**AVX2_OPTIONS, **AVX512_OPTIONS})
    variants["avx2" if "avx2" in flags else "plain"] = options(AVX2_OPTIONS)
    return variants


def chosen_variants(variants, isa):
    """Names of the builds to measure: of one ISA, or with "best" all but the AVX2 one where there is a wider one."""
    if isa != "best":
        if isa not in variants:
            raise SetupError(f"--isa {isa}: expected one of {', '.join(variants)} on this CPU")
        return [isa]
    return [name for name in variants if name != "avx2"] or list(variants)


def call(command, what, log):
    """Runs a step; its output goes to the file `log`."""
    print(f"  {what}", flush=True)
    with open(log, "ab") as file:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False).returncode
    if status != 0:
        raise SetupError(f"{what}: ended with status {status}; see {log}")


def stamped(folder, text, make):
    """Calls make() unless `folder` holds the stamp of the same text."""
    stamp, wanted = folder / "stamp", hashlib.sha256(text.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make()
    stamp.write_text(wanted)


def requirement(name):
    lines = (HERE / "requirements-llama.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(name + "=="))


def source_package(root, name):
    """The unpacked source package, checked against its hash."""
    folder = root / "src" / name
    line = requirement(name)

    def make():
        wanted = folder / "requirements.txt"
        wanted.write_text(line + "\n")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, "--require-hashes"]
        command += ["--disable-pip-version-check", "--no-input", "-r", str(wanted), "-d", str(folder)]
        call(command, f"downloading {line.split()[0]}", root / "setup.log")
        archive = next(folder.glob("*.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        archive.unlink()

    stamped(folder, line, make)
    return next(entry for entry in folder.iterdir() if entry.is_dir())


def _configure(source, build, options, log):
    command = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *LLAMA_OPTIONS, *options]
    if shutil.which("ccache"):
        command += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    call(command, "configuring", log)


def _build(build, target, jobs, what, log):
    call(["cmake", "--build", str(build), "-j", str(jobs), "--target", target], what, log)


def llama(root, variant, options, jobs):
    """Builds llama.cpp's llama-bench and our llama_probe. Returns {"llama-bench", "llama_probe"}."""
    source = source_package(root, "llama-cpp-python") / "vendor" / "llama.cpp"
    folder = root / "llama.cpp" / variant
    mend, probe = HERE / "amx_tile_config.h", HERE / "llama_probe.cc"
    text = requirement("llama-cpp-python") + str(options) + mend.read_text() + probe.read_text()
    log = root / "setup.log"

    def make():
        _configure(source, folder, [*options, f"-DCMAKE_CXX_FLAGS=-include {mend}"], log)
        _build(folder, "llama-bench", jobs, f"building llama.cpp ({variant}); this takes minutes", log)
        libraries = folder / "bin"
        command = [os.environ.get("CXX", "c++"), "-O2", "-std=c++20", f"-I{source}/include", f"-I{source}/ggml/include"]
        command += [str(probe), f"-L{libraries}", f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"]
        command += ["-lllama", "-lggml", "-lggml-base", "-o", str(libraries / "llama_probe")]
        call(command, "building llama_probe", log)

    stamped(folder, text, make)
    return {name: str(folder / "bin" / name) for name in ("llama-bench", "llama_probe")}


def ik_llama(root, isa, jobs):
    """Builds ik_llama.cpp's llama-bench for this CPU (it has no AMX), or for AVX2. Returns {"llama-bench"}."""
    source = source_package(root, "ik-llama-cpp-python") / "vendor" / "ik_llama.cpp"
    folder = root / "ik_llama.cpp" / ("avx2" if isa == "avx2" else "native")
    native = ["-DGGML_NATIVE=ON"] if isa != "avx2" else ggml_variants(set(AVX2_OPTIONS), "x86_64")["avx2"]
    options = [*native, "-DGGML_IQK_FLASH_ATTENTION=ON", "-DGGML_IQK_FA_ALL_QUANTS=OFF"]
    log = root / "setup.log"

    def make():
        _configure(source, folder, options, log)
        _build(folder, "llama-bench", jobs, "building ik_llama.cpp; this takes ten minutes and more", log)

    stamped(folder, requirement("ik-llama-cpp-python") + str(options), make)
    return {"llama-bench": str(folder / "bin" / "llama-bench")}


def environment(root, name):
    """A virtual environment of requirements-NAME.txt; returns its python."""
    folder, wanted = root / f"venv-{name}", HERE / f"requirements-{name}.txt"
    python, log = folder / "bin" / "python", root / "setup.log"

    def make():
        call([sys.executable, "-m", "venv", str(folder)], f"making the environment of {name}", log)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        call(pip + ["install", "-r", str(wanted)], f"installing {wanted.name}", log)
        if name == "openvino":
            # Only images need it, and a build that does not match torch's breaks the import of the exporter.
            call(pip + ["uninstall", "-y", "torchvision"], "leaving out torchvision", log)

    stamped(folder, wanted.read_text(), make)
    return str(python)


def openvino_model(root, python):
    """The Pocket shape with random weights for OpenVINO; returns its folder."""
    folder, script = root / "models" / "pocket-openvino", HERE / "openvino_export.py"

    def make():
        call([python, str(script), str(folder)], "exporting the Pocket shape for OpenVINO", root / "setup.log")

    stamped(folder, script.read_text(), make)
    return str(folder)


def machine():
    return platform.machine()
