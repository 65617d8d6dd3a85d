"""Runs the repository checks, and proves on bad examples that each of them can fail."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import repo_checks

ROOT = Path(os.environ.get("POCKETLM_SOURCE_DIR", Path(__file__).resolve().parents[2]))


@pytest.fixture(scope="module")
def tree():
    return repo_checks.read_tree(ROOT)


@pytest.mark.parametrize("check", repo_checks.CHECKS, ids=lambda check: check.__name__)
def test_repository(tree, check):
    assert "CMakeLists.txt" in tree and any(path.startswith("src/") for path in tree)
    complaints = check(tree)
    assert not complaints, "\n" + "\n".join(complaints)


def long_function(lines):
    return "int Long() {\n" + "  Call();\n" * (lines - 2) + "}\n"


BAD = [
    (repo_checks.check_include_direction, "src/base/a.h", '#include "model/config.h"\n'),
    (repo_checks.check_include_direction, "src/tokenizer/a.cc", "#include <format/gguf.h>\n"),
    (repo_checks.check_include_direction, "src/model/a.cc", '#include "runtime/session.h"\n'),
    (repo_checks.check_include_direction, "src/chat/a.cc", '#include "tokenizer/bpe.h"\n'),
    (repo_checks.check_include_direction, "src/runtime/a.cc", '#include "pocketlm/pocketlm.h"\n'),
    (repo_checks.check_include_direction, "src/model/a.cc", '#include "../runtime/session.h"\n'),
    (repo_checks.check_include_direction, "src/model/a.cc", '#include "config.h"\n'),
    (repo_checks.check_include_direction, "src/newcomer/a.cc", "\n"),
    (repo_checks.check_include_direction, "apps/cli/main.cc", '#include "base/status.h"\n'),
    (repo_checks.check_include_direction, "include/pocketlm/a.h", '#include "base/status.h"\n'),
    (repo_checks.check_link_direction, "src/base/CMakeLists.txt", "DEPENDS pocketlm_model)\n"),
    (repo_checks.check_portability, "src/model/a.cc", "#include <sys/mman.h>\n"),
    (repo_checks.check_portability, "src/format/a.cc", "  #  include <unistd.h>\n"),
    (repo_checks.check_portability, "src/model/a.cc", "#include <immintrin.h>\n"),
    (repo_checks.check_headers, "src/base/a.h", "// What it is for.\nint a;\n"),
    (repo_checks.check_headers, "src/base/a.h", "#pragma once\nint a;\n"),
    (repo_checks.check_lengths, "src/base/a.cc", "\n" * (repo_checks.SOURCE_LINES + 1)),
    (repo_checks.check_lengths, "src/base/a.h", "\n" * (repo_checks.HEADER_LINES + 1)),
    (repo_checks.check_lengths, "src/base/a.cc", long_function(repo_checks.FUNCTION_LINES + 1)),
    (repo_checks.check_lengths, "src/backend/a.cc", long_function(repo_checks.KERNEL_LINES + 1)),
    (repo_checks.check_machine_paths, "README.md", "see /" + "work/main\n"),
    (repo_checks.check_machine_paths, "src/base/a.cc", '"https://pypi' + '.org/simple"\n'),
    (repo_checks.check_unfinished, "src/base/a.cc", "// TO" + "DO: the rest\n"),
    (repo_checks.check_links, "docs/a.md", "[format](format.md)\n"),
    (repo_checks.check_make_targets, "README.md", "`make coffee`\n"),
    (repo_checks.check_shown_code, "README.md", "```c\nint main() {}\n```\n"),
    (repo_checks.check_include_direction, "examples/a.c", '#include "base/status.h"\n'),
]


@pytest.mark.parametrize("check, path, text", BAD, ids=lambda value: getattr(value, "__name__", None))
def test_bad_example_is_refused(check, path, text):
    assert check({path: text})


GOOD = {
    "Makefile": "test: build\n",
    "README.md": "[layout](docs/a.md#top) and `make test`, [site](https://example.com)\n",
    "examples/a.c": "// Does nothing.\nint main() {}\n",
    "CONTRIBUTING.md": "```c\nint main() {}\n```\n",
    "docs/a.md": "[back](../README.md), [folder](../src/base)\n",
    "apps/cli/main.cc": '#include "pocketlm/pocketlm.hpp"\n#include "args.h"\n#include "cli/args.h"\n',
    "include/pocketlm/pocketlm.h": "// The C API.\n#pragma once\n#include <stdint.h>\n",
    "src/base/file.cc": '#include "base/file.h"\n#include <unistd.h>\n' + long_function(90),
    "src/capi/a.cc": '#include "chat/text.h"\n#include "pocketlm/pocketlm.h"\n',
    "src/model/a.cc": '#include "backend/backend.h"\n#include "format/gguf.h"\n',
    "src/model/CMakeLists.txt": "DEPENDS pocketlm_backend pocketlm_format)\n",
    "src/backend/cpu/x86/a.cc": "#include <immintrin.h>\n" + long_function(140),
}


@pytest.mark.parametrize("check", repo_checks.CHECKS, ids=lambda check: check.__name__)
def test_good_example_passes(check):
    assert check(GOOD) == []


def test_function_lengths():
    text = """namespace a {
struct Row {
  int x = 0;
  int Twice() const {
    return 2 * x;
  }
};
constexpr int kTable[] = {
    1,
};
int Sum(int a,
        int b) {
  if (a) {
    return b;
  }
  return a + b;
}
constexpr int kMore = 1;
}  // namespace a
"""
    assert list(repo_checks.function_lengths(text.splitlines())) == [(4, 3), (11, 7)]


def test_clang_format(tree):
    program = shutil.which("clang-format-14")
    assert program, "clang-format-14 is missing (tools/setup.sh test)"
    paths = [p for p in tree if repo_checks._is_cpp(p) and not repo_checks._is_generated(tree[p])]
    result = subprocess.run(
        [program, "--dry-run", "--Werror", *paths], cwd=ROOT, capture_output=True, text=True
    )
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if ": error:" in line})
    assert result.returncode == 0 and not wrong, "run `make format`: " + " ".join(wrong)
