"""The commands and flags that the Markdown pages show exist in the program."""

import re
import subprocess

import pytest

from conftest import BIN, SOURCE_DIR


def shown_commands():
    for page in sorted(SOURCE_DIR.glob("*.md")) + sorted(SOURCE_DIR.glob("docs/*.md")):
        for line in page.read_text().splitlines():
            match = re.match(r"^(?:build/)?pocketlm ([a-z][a-z-]*)(.*)$", line)
            if match:
                yield pytest.param(*match.groups(), id=f"{page.name}:{match.group(1)}")


def help_of(command):
    result = subprocess.run([BIN, command, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("command, rest", list(shown_commands()))
def test_shown_command_exists(command, rest):
    text = help_of(command)
    flags = re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", re.sub(r'"[^"]*"', "", rest))
    assert not [flag for flag in flags if not re.search(re.escape(flag) + r"\b", text)]


def test_readme_shows_every_command():
    result = subprocess.run([BIN, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    commands = re.findall(r"^  ([a-z][a-z-]*)\s{2,}\w", result.stdout, re.M)
    assert len(commands) >= 6
    readme = (SOURCE_DIR / "README.md").read_text()
    assert [c for c in commands if f"pocketlm {c} " not in readme] == []
