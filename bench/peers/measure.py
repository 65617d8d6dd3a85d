"""Runs one program as a process of its own and notes what it took and who disturbed it."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass

# A run is disturbed if other processes took more of the CPU than this, in cores; short runs are granted some ticks.
OTHER_CORES = 0.1
OTHER_TICKS_S = 0.05


class RunError(Exception):
    """A program failed; the text tells which, how, and its last words."""


@dataclass
class Run:
    output: str
    wall_s: float
    peak_rss_bytes: int
    other_cores: float  # CPU of all other processes and of the hypervisor's other guests, during the run
    disturbed: bool


def busy_seconds(stat_text):
    """Seconds of CPU time in use since the start, over all CPUs, from the text of /proc/stat; stolen time counts."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat_text.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _busy_now():
    with open("/proc/stat", encoding="ascii") as file:
        return busy_seconds(file.read())


def run_once(command, env=None, timeout_s=7200):
    """Runs `command` with `env` added to the environment. Raises RunError if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        busy, start = _busy_now(), time.monotonic()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
        )
        status, usage = _wait(process, start + timeout_s)
        wall = time.monotonic() - start
        other = _busy_now() - busy - usage.ru_utime - usage.ru_stime
        out.seek(0), err.seek(0)
        output, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    if status != 0:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        last = "\n".join((errors or output).strip().splitlines()[-5:])
        raise RunError(f"{' '.join(map(str, command))}: ended with {how}\n{last}")
    disturbed = other > max(OTHER_CORES * wall, OTHER_TICKS_S)
    return Run(output, wall, usage.ru_maxrss * 1024, max(other, 0.0) / wall, disturbed)


def _wait(process, deadline):
    """Status and use of the process; one that outlives the deadline, or us, is killed."""
    pid = 0
    try:
        while not pid and time.monotonic() < deadline:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            time.sleep(0 if pid else 0.005)
    finally:
        if not pid:
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    return status, usage


def run_undisturbed(command, env=None, tries=3, note=print):
    """Repeats a disturbed run; after `tries` of them the last one is returned, with disturbed set."""
    for attempt in range(tries):
        run = run_once(command, env)
        if not run.disturbed:
            break
        if attempt + 1 < tries:
            note(f"  disturbed: {run.other_cores:.2f} cores went elsewhere; again")
    return run
