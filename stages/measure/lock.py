"""The device's read/write lock: many may use a device at once, one alone may time on it.

Every acquisition opens the device's lock file anew and takes `flock` on it. The kernel compares open files, so threads
of one process exclude each other by the same rule as processes do, and it drops the lock of a process that is killed.

Nobody starves: whoever wants the device, to share it or alone, first passes a turnstile, and holds it while he waits
for the lock itself. So a waiting writer lets no later reader past, and a waiting reader no later writer. Threads of one
process queue for the turnstile, like with like; between processes the kernel decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.measure import devices

NOTICE_S = 3.0
"""After this long a wait is worth a word."""

MOST_PASSED = 64
"""So often a thread may be passed by later ones that want what the one before them wanted."""

OnWait = Callable[[str], None]


def announce(who: str) -> None:
    """Say on stderr whom we are waiting for."""
    print(f"kernelwright: waiting for the device, held by {who}", file=sys.stderr)


def runtime_folder() -> Path:
    """This user's folder of lock files. Raises EnvironmentFault when somebody else made it.

    Not in $XDG_RUNTIME_DIR or $TMPDIR: two processes with other environments would not exclude each other.
    """
    folder = Path("/tmp") / f"kernelwright-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid():
        raise EnvironmentFault(f"{folder} belongs to another user: remove it, or have it removed")
    return folder


class DeviceLock:
    """The lock of one device of this machine.

    `on_wait(who)` is called once for each wait that lasts longer than `notice_s`, from a thread of its own; `who` names
    the processes that hold the device. A thread that holds the lock must not ask for it again: RuntimeError.
    """

    def __init__(
        self,
        device: str,
        *,
        folder: Path | None = None,
        on_wait: OnWait = announce,
        notice_s: float = NOTICE_S,
    ) -> None:
        base = folder or runtime_folder()
        self.path = base / f"{devices.identity(device)}.lock"
        self.turnstile = base / f"{devices.identity(device)}.turn"
        self.on_wait = on_wait
        self.notice_s = notice_s
        self._held = threading.local()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that share it."""
        with self._hold(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Have the device alone."""
        with self._hold(fcntl.LOCK_EX):
            yield

    def holders(self) -> str:
        """Who holds the lock just now, in words: from the kernel's own list, so that nobody has to be believed."""
        return _holders(self.path)

    @contextlib.contextmanager
    def _hold(self, kind: int) -> Iterator[None]:
        if getattr(self._held, "now", False):
            raise RuntimeError("this thread holds the device's lock already")
        with contextlib.ExitStack() as lock:
            with self._noticing(), _queue_of(self.turnstile).turn(kind), _flock(self.turnstile, fcntl.LOCK_EX):
                # Left below, after the turnstile, which is free again as soon as the lock is ours.
                lock.enter_context(_flock(self.path, kind))
            self._held.now = True
            try:
                yield
            finally:
                self._held.now = False

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """Call `on_wait` if the body takes long."""
        timer = threading.Timer(self.notice_s, lambda: self.on_wait(self.holders()))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Queue:
    """A lock that threads get in turn: those who want the same as the one before, then the one who waits longest.

    Changing between sharing and having it alone costs a wait until all who share are through; in strict order every
    other thread would pay that.
    """

    def __init__(self) -> None:
        self._waiting: list[_Turn] = []
        self._inside: _Turn | None = None
        self._latest: int | None = None
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def turn(self, kind: int) -> Iterator[None]:
        """Wait for one's turn; it is over afterwards."""
        mine = _Turn(kind)
        with self._guard:
            self._waiting.append(mine)
            self._admit()
        try:
            mine.come.wait()
            yield
        finally:
            with self._guard:
                if self._inside is mine:
                    self._inside = None
                else:
                    self._waiting.remove(mine)
                self._admit()

    def _admit(self) -> None:
        if self._inside is not None or not self._waiting:
            return
        first = self._waiting[0]
        same = next((turn for turn in self._waiting if turn.kind == self._latest), first)
        chosen = first if first.passed >= MOST_PASSED else same
        first.passed += chosen is not first
        self._waiting.remove(chosen)
        self._inside, self._latest = chosen, chosen.kind
        chosen.come.set()


class _Turn:
    """One thread's place in the queue."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.come = threading.Event()
        self.passed = 0
        """How often another went first that had come later."""


_queues: dict[Path, _Queue] = {}
_queues_guard = threading.Lock()


def _queue_of(path: Path) -> _Queue:
    """One queue a file for the whole process, however many `DeviceLock`s it has."""
    with _queues_guard:
        return _queues.setdefault(path, _Queue())


@contextlib.contextmanager
def _flock(path: Path, kind: int) -> Iterator[None]:
    file = _locked(path, kind)
    try:
        yield
    finally:
        # Said before closing: a child that was forked meanwhile may hold a copy of the file open.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _locked(path: Path, kind: int) -> int:
    """The file, opened and locked; opened again when somebody removed it while we waited."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, kind)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(file).st_ino == path.stat().st_ino:
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _holders(path: Path) -> str:
    try:
        number = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    # "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF"; who only waits has "->" after the first word.
    rows = [line.split() for line in lines if "->" not in line]
    pids = {int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rsplit(":", 1)[-1] == number}
    return ", ".join(_describe(pid) for pid in sorted(pids)) or "another process"


def _describe(pid: int) -> str:
    if pid == os.getpid():
        return f"this process ({pid})"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({b' '.join(words).decode(errors='replace').strip()[:80]})"
