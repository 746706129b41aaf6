"""What a runner's process gives up before it meets a candidate. Each measure that this machine does not offer is left
out and named, so that nobody believes in one that is not there.

`become_able` is for the zygote, `enter` for the child that it forks. Standard library only: the doctor asks as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelwright.stages.sandbox import keep, linux, seccomp, view


class Phase(StrEnum):
    """What a runner's process is for."""

    TRUSTED = "trusted"
    """The reference, eager or compiled. It may start compilers and sees the whole file system; no network."""
    BUILD = "build"
    """A candidate's first call, thrown away: compilers may start, and what they write to the caches stays."""
    RUN = "run"
    """A candidate's calls that count: nothing may be started, and nothing that is written stays."""


NETWORK = "network"
PROCESSES = "processes"
FILES = "files"
PRIVILEGES = "privileges"
SYSTEM_CALLS = "system calls"
MEASURES = {
    NETWORK: "no network: an empty network namespace",
    PROCESSES: "sees and signals no process but its own, which end together: a PID namespace",
    FILES: "sees no file but the system's and its own, all read-only but its folder: a mount namespace",
    PRIVILEGES: "no capability, and no way to gain one",
    SYSTEM_CALLS: "starts no program and opens no socket: a seccomp filter",
}
"""What each measure gives, in words."""

Outcome = dict[str, bool | str]
"""By measure: True, or the reason why it is not there."""


@dataclass(frozen=True)
class Limits:
    """What a process may take of the machine; time and memory are limited from outside."""

    written_bytes: int = 4 * 2**30
    """All that it writes to its own folder; where it has no file system of its own, its longest file."""
    open_files: int = 4096


@dataclass(frozen=True)
class Plan:
    """How runners are to be confined here."""

    shown: Sequence[Path]
    """What `view.needed` gave."""
    works: Outcome
    """What `available` gave; empty when that is just being found out."""
    apart: bool
    """Whether the process has been forked into a PID namespace of its own."""


CACHE_VARIABLES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
}
"""Where compilers keep what they made: in the first cache folder, from which the run phase takes it."""

phase = Phase.TRUSTED
"""This process's phase, for those who behave by it."""
caches: tuple[Path, ...] = ()
"""Its cache folders."""


def become_able() -> None:
    """In the zygote: where we are not privileged, enter a user namespace in which we are. Skipped where not allowed."""
    if not linux.is_capable():
        with contextlib.suppress(OSError):
            linux.own_user_namespace()


def files_are_own() -> bool:
    """Whether this process sees a file system made for it alone."""
    return view.OWN_FOLDER.is_dir()


def enter(home: Path, own_phase: Phase, own_caches: Sequence[Path], limits: Limits, plan: Plan) -> Outcome:
    """In the child, before anything of a candidate's is read: take the measures of `plan`, and say which were taken.

    `home` is a folder with the empty folders `view.WRITABLE` in it. What a plan without `works` finds missing is left
    out; where a probe has found that a measure works, its failure raises OSError.
    """
    global phase, caches
    phase, caches = own_phase, tuple(own_caches)
    os.setsid()
    taken: Outcome = {}

    def take(name: str, measure: Callable[[], None]) -> None:
        known = plan.works.get(name, True)
        if known is not True:
            taken[name] = known
            return
        try:
            measure()
            taken[name] = True
        except OSError as error:
            if name in plan.works:
                raise
            taken[name] = error.strerror or str(error)

    take(NETWORK, lambda: linux.unshare(linux.CLONE_NEWNET))
    if plan.apart:
        take(PROCESSES, view.own_proc)
    guarded = own_phase is not Phase.TRUSTED
    if guarded and taken.get(PROCESSES) is True:
        stays = own_phase is Phase.BUILD
        take(FILES, lambda: view.build(home, plan.shown, caches, keep_writes=stays, limit=limits.written_bytes))
    _use_own_folders(home, caches)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if guarded:
        _limit(resource.RLIMIT_FSIZE, limits.written_bytes)
        _limit(resource.RLIMIT_NOFILE, limits.open_files)
        take(PRIVILEGES, linux.drop_capabilities)
    # Not earlier: the kernel forgets it when credentials change. Not later: the filter refuses it.
    linux.end_with_parent()
    if guarded:
        take(SYSTEM_CALLS, lambda: _filter(own_phase, signals=taken.get(PROCESSES) is True))
    return taken


def _use_own_folders(home: Path, caches: Sequence[Path]) -> None:
    os.environ.update(HOME=str(home / "home"), TMPDIR=str(home / "tmp"))
    cache = caches[0] if caches else home / "home" / ".cache"
    for name, folder in CACHE_VARIABLES.items():
        os.environ[name] = str(cache / folder)
    tempfile.tempdir = None
    os.chdir(home / "work")


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _filter(own_phase: Phase, *, signals: bool) -> None:
    building = own_phase is Phase.BUILD
    # libcuda opens local sockets to hand descriptors from process to process; without a GPU nobody needs one.
    local = building or Path("/dev/nvidiactl").exists()
    families = (socket.AF_UNIX,) if local else ()
    seccomp.install(may_start=building, may_signal=building and signals, families=families)


def available() -> Outcome:
    """What works on this machine for this user, found out by trying it all in a child.

    It may move the calling process into a user namespace: call it in a process made for that, with one thread.
    """
    become_able()
    try:
        return _probe(apart=True)
    except OSError as error:
        return _probe(apart=False) | {PROCESSES: str(error), FILES: "needs a process namespace"}


def _probe(*, apart: bool) -> Outcome:
    reading, writing = os.pipe()

    plan = Plan(view.needed(dict(os.environ)), {}, apart)

    def child() -> None:
        os.write(writing, json.dumps(enter(home, Phase.RUN, [], Limits(), plan)).encode())

    with tempfile.TemporaryDirectory(prefix="kernelwright-probe-") as folder:
        home = make_home(Path(folder).resolve())
        kept = keep.fork_apart(child, apart=apart)
        os.close(writing)
        with open(reading, "rb") as answers:  # noqa: PTH123 - a descriptor
            told = answers.read()
        os.waitpid(kept.pid, 0)
    found: Outcome = json.loads(told) if told else dict.fromkeys(MEASURES, "the child that tried it died")
    return found


def make_home(folder: Path) -> Path:
    """Make the folders in a runner's own folder that `enter` expects."""
    for part in view.WRITABLE:
        (folder / part).mkdir()
    return folder
