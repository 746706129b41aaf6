"""Run a compiler, or a child that imports a candidate, in its own process group under a deadline."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INHERITED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CUDA_HOME", "CUDA_PATH", "OMP_NUM_THREADS")
"""What a compiler needs from our environment. All else stays out: a candidate is imported there, and keys are not its
business."""

PR_SET_PDEATHSIG = 1

LOG_CHARACTERS = 8000
"""Longest log that is kept; the middle of a longer one is left out."""


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    returncode: int | None
    """Negative: the number of the signal that killed it. None: it outlived its deadline and was killed."""
    output: str
    """Standard output and standard error together, whole."""
    seconds: float

    @property
    def signal_name(self) -> str | None:
        """`SIGSEGV` and the like when a signal ended the process."""
        if self.returncode is None or self.returncode >= 0:
            return None
        return signal.Signals(-self.returncode).name


def run_limited(argv: Sequence[str], *, cwd: Path, deadline_s: float, env: Mapping[str, str]) -> Finished:
    """Run `argv` in `cwd` and kill its whole process group after `deadline_s` seconds.

    The output goes through a file, not a pipe: a grandchild that outlives its parent would hold a pipe open.
    """
    started = time.perf_counter()
    log = cwd / "output.txt"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        returncode: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                returncode = child.wait(timeout=deadline_s)
        finally:
            _kill_group(child)
    output = log.read_text(errors="replace")
    return Finished(returncode, output, time.perf_counter() - started)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group (a helper that the process started outlives it), and reap the child."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def end_with_parent() -> None:
    """For a child of `run_limited`, before it imports a candidate: whoever would enforce its deadline may be killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def child_environment(scratch: Path, **extra: str) -> dict[str, str]:
    """Environment of a child: a few inherited names, temporary files in `scratch`, our own import path, and `extra`."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {"TMPDIR": str(scratch), "HOME": str(scratch)} | extra


def python_environment(scratch: Path, **extra: str) -> dict[str, str]:
    """`child_environment` for a Python child, which imports what this process can import."""
    search_path = os.pathsep.join(p for p in sys.path if p)
    return child_environment(scratch, PYTHONPATH=search_path, PYTHONDONTWRITEBYTECODE="1", **extra)


def trimmed(log: str) -> str:
    """`log` with the middle left out when it is longer than LOG_CHARACTERS: the first error and the summary stay."""
    log = log.strip()
    if len(log) <= LOG_CHARACTERS:
        return log
    head, tail = LOG_CHARACTERS * 2 // 3, LOG_CHARACTERS // 3
    return f"{log[:head]}\n[... {len(log) - head - tail} characters left out ...]\n{log[-tail:]}"
