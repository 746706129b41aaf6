"""Handles on the zygote and on its runners, for the referee."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.sandbox import census, confine, watchdog
from kernelwright.stages.sandbox.confine import Limits, Outcome, Phase
from kernelwright.stages.sandbox.keep import descendants
from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed, ChannelTimeout

START_TIMEOUT_S = 120.0
"""Importing torch and triton from a cold disk."""

DYING_S = 0.2
"""How long a process whose channel has ended may take to end by itself."""

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


@dataclass(frozen=True)
class Process:
    """A runner's process, the one that keeps it, and the first of its PID namespace."""

    pid: int
    keeper: int
    first: int | None

    def family(self) -> list[int]:
        """The process and all that it has started, wherever they have moved to."""
        return [pid for pid in descendants(self.keeper) if pid != self.first]


class Runner:
    """A forked child that holds one module."""

    def __init__(self, zygote: Zygote, channel: Channel, process: Process, home: Path) -> None:
        self.zygote = zygote
        self.channel = channel
        self.process = process
        self.home = home
        """Where the referee puts files for the runner, which sees them under the same name and cannot change them."""
        self.measures: Outcome = {}
        """What confines it: by name, True or the reason why not."""
        self.alive = True
        self.watched: watchdog.Watched | None = None

    @property
    def pid(self) -> int:
        """The process's number, as seen from here."""
        return self.process.pid

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

    def pause(self) -> None:
        """Stop it with all that it has started, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        for pid in {self.pid, *(self.watched.family() if self.watched is not None else ())}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _death(self) -> RunnerFailed:
        status = self.kill()
        if self.watched is not None and self.watched.reason:
            return RunnerFailed("oom", self.watched.reason)
        if status is not None and status < 0:
            number = -status
            name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
            return RunnerFailed("crash", f"the process died by {name}")
        return RunnerFailed("crash", f"the process exited by itself (status {status})")

    def kill(self) -> int | None:
        """End it with all that it has started; return the exit status (negative: a signal), None when gone before."""
        with self.zygote.lock:
            if not self.alive:
                return None
            self.alive = False
        if self.watched is not None:
            self.zygote.watchdog.leave(self.watched)
        self.channel.close()
        status = self.zygote.reap(self.process)
        shutil.rmtree(self.home, ignore_errors=True)
        return status


@contextlib.contextmanager
def alone(runner: Runner, among: Iterable[Runner]) -> Iterator[None]:
    """Stop the others meanwhile: nothing that they do can slow this one down, or be prepared at its expense."""
    others = [other for other in among if other is not runner]
    for other in others:
        other.pause()
    try:
        yield
    finally:
        for other in others:
            other.resume()


class Zygote:
    """Starts and owns the zygote process. `environment` adds variables (`TRITON_INTERPRET=1`).

    Its start takes seconds, for it imports torch; who made it waits for that only when a runner is wanted.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kernelwright-")).resolve()
        self.lock = threading.Lock()
        self.watchdog = watchdog.Watchdog()
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
                # How long threads of LLVM's and Intel's OpenMP spin after a parallel region; 200 if nobody says.
                "KMP_BLOCKTIME": str(census.KMP_BLOCKTIME_MS),
                "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            | dict(environment or {}),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._measures: Outcome | None = None
        self.closed = False

    @property
    def measures(self) -> Outcome:
        """What this machine offers to confine a candidate: by name, True or the reason why not. Raises EnvironmentFault
        when the zygote does not come up."""
        with self.lock:
            return self._once_up()

    def _once_up(self) -> Outcome:
        if self._measures is None:
            try:
                ready, _ = self.channel.receive(START_TIMEOUT_S)
            except (ChannelClosed, ChannelTimeout) as error:
                raise EnvironmentFault(f"the sandbox's zygote did not start: {error}") from None
            self._measures = ready["measures"]
        return self._measures

    def spawn(
        self,
        phase: Phase = Phase.RUN,
        caches: Sequence[Path] = (),
        limits: Limits | None = None,
        memory_bytes: int | None = None,
    ) -> Runner:
        """Fork a runner: some twenty milliseconds. Several threads may do so at once.

        `caches` are folders that exist: a runner of the build phase writes to them; one of the run phase finds what was
        written, and what it writes there itself ends with it. The first is where compilers are told to keep their
        output. `memory_bytes`: what it may hold before it is ended; a share of the machine when not given. Raises
        EnvironmentFault.
        """
        ours, theirs = Channel.pair()
        home = confine.make_home(Path(tempfile.mkdtemp(dir=self.folder)))
        wanted = {"phase": phase.value, "home": str(home), "caches": [str(c.resolve()) for c in caches]}
        try:
            fork = wanted | {"do": "fork", "limits": dataclasses.asdict(limits or Limits())}
            answer = self._ask(fork, [theirs.fileno()])
        except EnvironmentFault:
            ours.close()
            raise
        finally:
            theirs.close()
        if answer["threads"] != 1:
            raise EnvironmentFault(f"the sandbox's zygote runs {answer['threads']} threads; it must fork from one")
        runner = Runner(self, ours, Process(answer["pid"], answer["keeper"], answer["first"]), home)
        try:
            entered, _ = ours.receive(START_TIMEOUT_S)
        except (ChannelClosed, ChannelTimeout) as error:
            entered = {"fault": str(error)}
        if "fault" in entered:
            runner.kill()
            raise EnvironmentFault(f"the sandbox could not be entered: {entered['fault']}")
        runner.measures = entered["entered"]
        alone = phase is Phase.RUN and runner.measures[confine.SYSTEM_CALLS] is True
        family = (lambda: [runner.pid]) if alone else runner.process.family
        runner.watched = watchdog.Watched(runner.pid, memory_bytes or watchdog.memory_limit(), family)
        self.watchdog.join(runner.watched)
        return runner

    def _ask(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        try:
            with self.lock:
                self._once_up()
                self.channel.send(message, fds)
                return self.channel.receive(START_TIMEOUT_S)[0]
        except (ChannelClosed, ChannelTimeout) as error:
            raise EnvironmentFault(f"the sandbox's zygote is gone: {error}") from None

    def reap(self, process: Process) -> int:
        """End a runner and whatever it started, and return how it ended."""
        if self.closed:
            return -signal.SIGKILL
        # The child may just be dying of its own signal: give the kernel a moment to record which.
        _wait_for_death(process.keeper, DYING_S)
        deadline = time.monotonic() + START_TIMEOUT_S
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.keeper, signal.SIGTERM)
        while time.monotonic() < deadline:
            # The lock is not held while waiting: a process that has used a GPU may take long to end.
            status = self._ask({"do": "reap", "keeper": process.keeper})["status"]
            if status is not None:
                return int(status)
            _wait_for_death(process.keeper, DYING_S)
        raise EnvironmentFault(f"process {process.pid} does not end, though it was killed")

    def close(self) -> None:
        """End the zygote, and with it every runner. Once is enough."""
        self.closed = True
        self.watchdog.close()
        self.channel.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait_for_death(pid: int, seconds: float) -> None:
    """Wait a moment for a process to become a zombie, so that its own signal is recorded."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.002)
