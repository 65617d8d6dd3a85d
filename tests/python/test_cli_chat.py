"""`chat` without a terminal and on one (a pseudo terminal): editing, history, Ctrl-C, Ctrl-D, a full context."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time

import pytest

from conftest import environment_for, require_model


@pytest.fixture(scope="module")
def smollm2():
    return require_model("smollm2-135m")


# ---- without a terminal


def test_lines_are_turns(run, smollm2):
    done = run("chat", smollm2, "-n", 8, stdin=b"What is gravity?\n\nAnd light?")
    assert done.returncode == 0, done.err
    assert done.out.startswith("Gravity is a") and done.out.count("\n") == 2
    assert ">" not in done.out  # no prompt


def test_conversation_is_remembered_until_reset(run, smollm2):
    turns = [b"My name is Zebedee.", b"What is my name?"]
    remembered = run("chat", smollm2, "-n", 12, stdin=b"\n".join(turns)).out
    assert "Zebedee" in remembered.split("\n")[1]
    forgotten = run("chat", smollm2, "-n", 12, stdin=turns[0] + b"\n/reset\n" + turns[1])
    assert "Zebedee" not in forgotten.out.split("\n")[1]
    assert "forgotten" in forgotten.err


def test_commands(run, smollm2):
    done = run("chat", smollm2, "-n", 2, stdin=b"/help\n/nonsense\n/exit\nHi\n")
    assert done.returncode == 0
    assert "/reset" in done.out and "/nonsense" in done.err
    assert "Hello" not in done.out  # nothing after /exit was answered


def test_ctx_d3_full_context_drops_the_turn_and_the_program_goes_on(run, smollm2):
    long_line = b"word " * 200
    done = run("chat", smollm2, "--ctx", 96, "-n", 4, stdin=b"Hi\n" + long_line + b"\nHi again\n")
    assert done.returncode == 0, done.err
    assert "/reset" in done.err and "96" in done.err
    assert done.out.count("\n") == 2  # the first and the last turn were answered


def test_ctx_d3_turns_up_to_the_limit_and_beyond(run, smollm2):
    done = run("chat", smollm2, "--ctx", 80, "--ignore-eos", stdin=b"Hi\nmore\n/reset\nHi\n")
    assert done.returncode == 0, done.err
    assert "the context is full" in done.err
    assert "the message was dropped" in done.err
    assert len([line for line in done.err.splitlines() if "the context is full" in line]) == 2  # after /reset again


def test_bad_flags_are_found_before_the_model_is_loaded(run):
    assert run("chat", "no-such-model", "--logit-bias", "x").returncode == 2


# ---- on a terminal


class Terminal:
    def __init__(self, arguments, home):
        self.main, child = pty.openpty()
        environment = environment_for(home, {"TERM": "xterm", "LC_ALL": "C.UTF-8", "HOME": home})
        self.process = subprocess.Popen(arguments, stdin=child, stdout=child, stderr=child, env=environment,
                                        start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(child)
        self.seen = ""
        self._undecoded = b""

    def read(self, seconds):
        ready, _, _ = select.select([self.main], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.main, 65536)
        except OSError:
            return False
        self._undecoded += data
        text = self._undecoded.decode("utf-8", "ignore")
        self._undecoded = b"" if text.encode() == self._undecoded else self._undecoded
        if not self._undecoded:
            self.seen += text
        return bool(data)

    def expect(self, pattern, seconds=60):
        """Waits for a pattern in what was not yet matched, and takes it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            if not self.read(0.2) and self.process.poll() is not None:
                break
        match = re.search(pattern, self.seen)
        assert match, f"{pattern!r} is not in {self.seen!r}"
        self.seen = self.seen[match.end():]
        return match

    def send(self, text):
        os.write(self.main, text.encode())

    def wait_until_answering(self):
        """Line editing switches the terminal's signals off; they are on again while the model answers."""
        while not termios.tcgetattr(self.main)[3] & termios.ISIG:
            time.sleep(0.01)
        self.expect(r"[a-z]{3}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)


@pytest.fixture
def terminal(program, smollm2, tmp_path):
    opened = []

    def open_chat(*flags):
        chat = Terminal([program, "chat", str(smollm2), *map(str, flags)], tmp_path / "home")
        opened.append(chat)
        chat.expect(r"Ctrl-D leaves")
        chat.expect(r"> ")
        return chat

    yield open_chat
    for chat in opened:
        chat.close()


def leave(chat):
    chat.send("\x04")
    assert chat.process.wait(timeout=30) == 0


def test_answer_and_ctrl_d(terminal):
    chat = terminal("-n", 6)
    chat.send("What is gravity?\r")
    chat.expect(r"Gravity is a")
    chat.expect(r"> ")
    leave(chat)


def test_ctrl_c_ends_the_answer_and_not_the_program(terminal):
    chat = terminal("--ignore-eos", "-n", 3000)
    chat.send("Tell a very long story.\r")
    chat.expect(r"story\.\r\n")
    chat.wait_until_answering()
    chat.send("\x03")
    chat.expect(r"cancelled")
    chat.expect(r"> ")
    chat.send("/help\r")
    chat.expect(r"forget the conversation")
    chat.expect(r"> ")
    leave(chat)


def test_ctrl_c_at_the_prompt_drops_the_line_and_hints(terminal):
    chat = terminal("-n", 2)
    chat.send("never sent")
    chat.expect("sent")
    chat.send("\x03")
    chat.expect(r"Ctrl-D or /exit leaves")
    chat.expect(r"> ")
    chat.send("/exit\r")
    assert chat.process.wait(timeout=30) == 0


def test_chinese_is_edited_by_characters(terminal):
    chat = terminal("-n", 2)
    chat.send("/世界\x7f\x7fhelp\r")  # two backspaces take away two characters
    chat.expect(r"forget the conversation")
    chat.expect(r"> ")
    leave(chat)


def test_history_lives_on(terminal, tmp_path):
    chat = terminal("-n", 2)
    chat.send("/help\r")
    chat.expect(r"forget the conversation")
    chat.expect(r"> ")
    leave(chat)
    assert (tmp_path / "home" / "chat_history").exists()
    chat = terminal("-n", 2)
    chat.send("\x1b[A\r")  # arrow up
    chat.expect(r"forget the conversation")
    chat.expect(r"> ")
    leave(chat)
