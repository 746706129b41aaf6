"""In the runner: notice what a candidate tries, whether or not it is let.

Python reports opening a file, a socket or a process to audit hooks (PEP 578, https://docs.python.org/3/library/
audit_events.html) before it happens. Whose doing it is, the stack tells: libraries are looked through, and a compiler
that torch or triton starts is theirs. C++ is not seen here; what it leaves in the temporary folder is (`leftovers`).

It shares the candidate's process: one that looks for it can silence it. It sees those who do not know of it, and says
what they did; what it misses is still refused by the kernel (`confine`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from kernelwright.stages.sandbox import confine, leftovers, prebuilt, view
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.origin import Origin, Origins

MAX_SEEN = 40
"""Different things that are kept; a loop that does one thing over and over fills no memory."""

_NETWORK = {"socket", "urllib", "http", "ftplib", "smtplib", "poplib", "imaplib", "nntplib", "telnetlib"}
_OWN_CHANNEL = "socket.sendmsg"
_PROCESSES = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
}  # fmt: skip
_WRITES = {
    "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.mkdir", "os.rmdir",
    "os.utime", "shutil.copyfile", "shutil.move", "shutil.rmtree",
}  # fmt: skip
_TWO_PATHS = {"os.rename", "os.link", "os.symlink", "shutil.copyfile", "shutil.move"}
_LISTS = {"os.listdir", "os.scandir"}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OTHERS = {"object.__setattr__", "ctypes.dlsym", "os.kill", "os.killpg", "os.putenv", "os.unsetenv"}
_HOOKS = {"sys.setprofile", "sys.settrace", "sys.addaudithook", "sys.monitoring.register_callback"}
_SYMBOLS = {
    "ptrace", "process_vm_readv", "process_vm_writev", "mprotect", "pkey_mprotect", "syscall", "prctl", "fork", "vfork",
    "clone", "execv", "execve", "execvp", "system", "popen", "posix_spawn", "posix_spawnp", "kill", "socket", "connect",
    "unshare", "setns", "mount", "signal", "sigaction",
}  # fmt: skip
"""Functions of the C library by which a process reaches out of itself or rewrites its own code."""
_SECRET = re.compile(r"(^|_)(API)?(KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWD|CREDENTIALS?|SEED)(_|$)", re.I)
_LOADED_BY_LATER_PROCESSES = {
    "LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH",
    "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT", "PYTHONUSERBASE", "BASH_ENV", "GCONV_PATH",
    "OMP_TOOL_LIBRARIES", "KMP_TOOL_LIBRARIES",
}  # fmt: skip
_CODE_OF_FUNCTIONS = {"__code__", "__defaults__", "__kwdefaults__"}

_READABLE = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/sys", "/nix", "/gnu")
_READABLE_FILES = re.compile(
    r"/dev/(null|zero|full|u?random|nvidia.*|dri.*|kfd|shm/.*)"
    r"|/proc/(cpuinfo|meminfo|stat|version|loadavg|modules|filesystems|mounts|driver(/.*)?|sys/.*)"
    r"|/proc/(self|thread-self)/(maps|smaps|status|statm|stat|cgroup|cpuset|exe|auxv|limits|numa_maps|cmdline)"
    r"|/etc/(ld\.so\..*|os-release|lsb-release|localtime|timezone|nvidia.*|alternatives.*|OpenCL.*)"
)
"""What describes the machine. Other processes, one's own memory and environment, and the rest of /etc do not."""

_seen: dict[str, None] = {}
_made: set[str] = set()


def install(candidate_file: str, phase: Phase) -> None:
    """Watch from now on, for good. Call it in the runner's own folders, before the candidate is imported."""
    folders = [Path(candidate_file).parent, Path.cwd(), Path(os.environ["TMPDIR"]), Path(os.environ["HOME"])]
    folders += [*confine.caches, *(Path(p) for p in view.private_folders())]
    own = tuple(str(folder.resolve()) for folder in folders)
    origins = Origins()
    sys.addaudithook(_hook(origins, phase, own, (*own, *_READABLE, *origins.library_folders)))
    watch_environment(origins)


def seen() -> list[str]:
    """What the candidate tried, and what it has left in the temporary folders, in sentences."""
    return [*_seen, *leftovers.left(_made)]


def note(sentence: str) -> None:
    """Keep a sentence, once."""
    if len(_seen) < MAX_SEEN:
        _seen.setdefault(sentence)


def _hook(origins: Origins, phase: Phase, own: tuple[str, ...], readable: tuple[str, ...]) -> Callable[..., None]:
    """The audit hook, with all that it needs bound: the names of this module may be anything by then."""
    getframe, fspath, realpath, getpid = sys._getframe, os.fspath, os.path.realpath, os.getpid
    secret_targets, symbols, processes, writes = _LOADED_BY_LATER_PROCESSES, _SYMBOLS, _PROCESSES, _WRITES
    hooks = _HOOKS
    network, keep, made, late = _NETWORK, note, _made, prebuilt.note_start
    installed = origins.library_folders

    def place(path: Any) -> str | None:
        """The path in full; None for a descriptor."""
        if isinstance(path, int) or path is None:
            return None
        text = fspath(path)
        full = realpath(text.decode(errors="replace") if isinstance(text, bytes) else text)
        return full.replace(f"/proc/{getpid()}/", "/proc/self/", 1)

    def below(path: str, folders: tuple[str, ...]) -> bool:
        return any(path == f or path.startswith(f + "/") for f in folders)

    def files(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
        writing = event in writes or (event == "open" and bool(int(args[2] or 0) & _WRITE_FLAGS))
        for argument in args[: 2 if event in _TWO_PATHS else 1]:
            path = place(argument)
            if path is None or path == "/dev/null":
                continue
            # Packages may lie below /tmp, which is its own but for them.
            if below(path, own) and not below(path, installed) if writing else below(path, readable):
                continue
            if not writing and _READABLE_FILES.fullmatch(path):
                continue
            origin = origins.of(frame)
            if origin.is_candidates and not origin.through_library:
                keep(f"{origin.where} {'tried to change' if writing else 'looked into'} {path}")

    def starts(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
        origin = origins.of(frame)
        name = str(args[0] if args and args[0] is not None else "")
        if event == "subprocess.Popen":
            name = args[1] if isinstance(args[1], str) else " ".join(str(part) for part in args[1][:4])
        if not origin.through_compiler:
            keep(f"{origin.where} started a process ({' '.join([event, name]).strip()})")
        elif phase is Phase.RUN:
            late(name)

    def other(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
        origin = origins.of(frame)
        if event == "object.__setattr__":
            target, name = args[0], args[1]
            if name in _CODE_OF_FUNCTIONS and origin.is_candidates and not origin.through_library:
                code = getattr(target, "__code__", None)
                if code is not None and origins.is_library(code.co_filename):
                    keep(f"{origin.where} replaced {name} of {getattr(target, '__qualname__', target)}")
        elif event == "ctypes.dlsym":
            if args[1] in symbols and origin.is_candidates and not origin.through_library:
                keep(f"{origin.where} took the C library's {args[1]}")
        elif event in {"os.kill", "os.killpg"}:
            if args[0] != getpid():
                keep(f"{origin.where} sent a signal to process {args[0]}")
        elif event in {"os.putenv", "os.unsetenv"}:
            name = args[0].decode(errors="replace") if isinstance(args[0], bytes) else str(args[0])
            if name in secret_targets and origin.is_candidates:
                keep(f"{origin.where} set {name}, which later processes would obey")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        try:
            if event == "open" or event in writes or event in _LISTS:
                files(event, args, getframe(1))
            elif event in processes:
                starts(event, args, getframe(1))
            elif event in {"tempfile.mkdtemp", "tempfile.mkstemp"}:
                made.add(str(args[0]))
            elif event in _OTHERS:
                other(event, args, getframe(1))
            elif event in hooks:
                origin = origins.of(getframe(1))
                if origin.is_candidates and not origin.through_library:
                    keep(f"{origin.where} asked to be told of what others run ({event})")
            elif event.partition(".")[0] in network and event != _OWN_CHANNEL:
                origin = origins.of(getframe(1))
                keep(f"{origin.where} used the network ({event})")
        except (TypeError, ValueError, OSError, IndexError, AttributeError):
            # Odd arguments: the call itself will say so.
            return

    return hook


def watch_environment(origins: Origins) -> None:
    """Let `os.environ` notice who lists it, and who asks for what looks like a secret."""
    getframe = sys._getframe

    def asked_by_candidate() -> Origin | None:
        # The frames of this function, of the method, and of the mapping's own helpers.
        frame: FrameType | None = getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen "):
            frame = frame.f_back
        if frame is None:
            return None
        origin = origins.of(frame)
        return origin if origin.is_candidates and not origin.through_library and origins.is_own(frame) else None

    class Environment(type(os.environ)):  # type: ignore[misc]
        """`os.environ` itself, under another class: whoever holds the object holds this one."""

        def __getitem__(self, name: Any) -> Any:
            if isinstance(name, str) and _SECRET.search(name) and (origin := asked_by_candidate()):
                note(f"{origin.where} asked the environment for {name}")
            return super().__getitem__(name)

        def __iter__(self) -> Any:
            if origin := asked_by_candidate():
                note(f"{origin.where} listed the environment")
            return super().__iter__()

        def __len__(self) -> int:
            if origin := asked_by_candidate():
                note(f"{origin.where} listed the environment")
            return int(super().__len__())

        def copy(self) -> Any:
            if origin := asked_by_candidate():
                note(f"{origin.where} listed the environment")
            return super().copy()

        def __repr__(self) -> str:
            if origin := asked_by_candidate():
                note(f"{origin.where} listed the environment")
            return str(super().__repr__())

    os.environ.__class__ = Environment
