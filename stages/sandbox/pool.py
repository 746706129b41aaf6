"""Handles on the zygote and on its runners, for the referee."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed, ChannelTimeout

START_TIMEOUT_S = 120.0
"""Importing torch and triton from a cold disk."""

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES")
"""What a candidate's process inherits. No key, no token, no address of a service is among them."""

ALLOCATOR = {
    # A fresh 64 MB output costs 18 ms of page faults with glibc's default thresholds: more than the kernels that are
    # compared. With these, freed blocks stay in the heap on both sides of every comparison.
    "MALLOC_MMAP_THRESHOLD_": "4294967295",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "1073741824",
}


class RunnerFailed(Exception):
    """A runner refused, raised, died or hung. `kind` names the verdict that follows, `message` is for a person."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Runner:
    """A forked child that holds one module."""

    def __init__(self, zygote: Zygote, channel: Channel, pid: int, home: Path) -> None:
        self.zygote = zygote
        self.channel = channel
        self.pid = pid
        self.home = home
        self.alive = True

    def ask(self, do: str, timeout_s: float, fds: tuple[int, ...] = (), **fields: Any) -> dict[str, Any]:
        """Send one message and wait for the answer. Raises RunnerFailed for every way in which that can go wrong."""
        self.post(do, fds, **fields)
        return self.answer(timeout_s)

    def post(self, do: str, fds: tuple[int, ...] = (), **fields: Any) -> None:
        """Send without waiting."""
        try:
            self.channel.send({"do": do, **fields}, fds)
        except ChannelClosed:
            raise self._death() from None

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the answer to what was posted."""
        try:
            answer, fds = self.channel.receive(timeout_s)
        except ChannelTimeout:
            self.kill()
            raise RunnerFailed("hang", f"no answer within {timeout_s:g} s") from None
        except ChannelClosed:
            raise self._death() from None
        for fd in fds:
            os.close(fd)
        if "error" in answer:
            raise RunnerFailed(str(answer["error"]), str(answer.get("message", "")))
        return answer

    def _death(self) -> RunnerFailed:
        status = self.kill()
        if status is not None and status < 0:
            number = -status
            name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
            return RunnerFailed("crash", f"the process died by {name}")
        return RunnerFailed("crash", f"the process exited by itself (status {status})")

    def kill(self) -> int | None:
        """End the whole process group; return the exit status (negative: a signal), None when it was gone before."""
        if not self.alive:
            return None
        self.alive = False
        self.channel.close()
        # The child may just be dying of its own signal: give the kernel a moment to record which.
        status = self.zygote.reap(self.pid)
        shutil.rmtree(self.home, ignore_errors=True)
        return status


class Zygote:
    """Starts and owns the zygote process. `environment` adds variables (`TRITON_INTERPRET=1`)."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        kept = {k: os.environ[k] for k in KEPT_VARIABLES if k in os.environ}
        ours, theirs = Channel.pair()
        self.channel = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelwright.stages.sandbox.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=kept
            | ALLOCATOR
            | {
                "HOME": str(self.folder),
                "TMPDIR": str(self.folder),
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                # numpy's BLAS would start threads at import, and only a single-threaded process may fork.
                "OPENBLAS_NUM_THREADS": "1",
                "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            | dict(environment or {}),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            self.channel.receive(START_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout) as error:
            self.close()
            raise EnvironmentFault(f"the sandbox's zygote did not start: {error}") from None

    def spawn(self) -> Runner:
        """Fork a runner: some ten milliseconds."""
        ours, theirs = Channel.pair()
        home = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            self.channel.send({"do": "fork", "home": str(home)}, [theirs.fileno()])
            answer, _ = self.channel.receive(START_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout) as error:
            raise EnvironmentFault(f"the sandbox's zygote is gone: {error}") from None
        finally:
            theirs.close()
        if answer["threads"] != 1:
            raise EnvironmentFault(f"the sandbox's zygote runs {answer['threads']} threads; it must fork from one")
        return Runner(self, ours, answer["pid"], home)

    def reap(self, pid: int) -> int:
        """Kill a runner's process group and return how the runner ended."""
        _wait_for_death(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        try:
            self.channel.send({"do": "reap", "pid": pid})
            answer, _ = self.channel.receive(START_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout) as error:
            raise EnvironmentFault(f"the sandbox's zygote is gone: {error}") from None
        return int(answer["status"])

    def close(self) -> None:
        """End the zygote, and with it every runner."""
        self.channel.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait_for_death(pid: int, seconds: float = 0.2) -> None:
    """Wait a moment for a process that closed its channel to become a zombie, so that its own signal is recorded."""
    import time

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.002)
