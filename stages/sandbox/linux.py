"""The few system calls that the sandbox makes itself, by ctypes: each raises OSError with the kernel's reason.

Standard library only, and nothing is looked up after a fork that was not bound before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import struct
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_MNT_DETACH = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442
"""The same number on every architecture."""

_libc = ctypes.CDLL(None, use_errno=True)
_NUMBERS = {
    # name: (x86_64, aarch64)
    "pivot_root": (155, 41),
    "capset": (126, 91),
}


def machine() -> str:
    """`x86_64`, `aarch64` or another name of the kernel's."""
    return platform.machine()


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _number(name: str) -> int:
    column = {"x86_64": 0, "aarch64": 1}.get(machine())
    if column is None:
        raise OSError(f"{name}: no system call number for {machine()}")
    return _NUMBERS[name][column]


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` (CLONE_NEW*) name, for new ones."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Enter the namespace that `fd` refers to."""
    _check(_libc.setns(fd, kind), "setns")


def prctl(option: int, value: int = 0) -> None:
    """`prctl` with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def mount(source: str | None, target: Path, kind: str | None, flags: int, data: str = "") -> None:
    """`mount`. `source` and `kind` may be None where the kernel ignores them."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, str(target), kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data) or None), f"mount on {target}")


def bind(source: Path, target: Path, *, recursive: bool) -> None:
    """Show a file or folder at a second place."""
    mount(str(source), target, None, MS_BIND | (MS_REC if recursive else 0))


def enter_root(root: Path) -> None:
    """Make the mount at `root` the root folder, and let go of the old one."""
    os.chdir(root)
    _check(_libc.syscall(_number("pivot_root"), b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def set_read_only(target: Path) -> None:
    """Make a mount and all mounts below it read-only."""
    if not _set_attributes(target, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0):
        # Kernels before 5.12: one mount at a time, each with the flags that it has.
        for point, flags in _mounts_below(target):
            mount(None, point, None, MS_REMOUNT | MS_BIND | flags | MS_RDONLY)


def set_writable(target: Path) -> None:
    """Let a mount be written to again, and none of those below it."""
    if not _set_attributes(target, 0, 0, _MOUNT_ATTR_RDONLY):
        for point, flags in _mounts_below(target):
            if point == target:
                mount(None, point, None, MS_REMOUNT | MS_BIND | (flags & ~MS_RDONLY))


def _set_attributes(target: Path, how: int, given: int, taken: int) -> bool:
    """mount_setattr. False where the kernel has none."""
    attributes = struct.pack("QQQQ", given, taken, 0, 0)
    arguments = (_AT_FDCWD, os.fsencode(target), how, attributes, len(attributes))
    if _libc.syscall(_SYS_MOUNT_SETATTR, *arguments) == 0:
        return True
    if (code := ctypes.get_errno()) != errno.ENOSYS:
        raise OSError(code, f"mount_setattr of {target}: {os.strerror(code)}")
    return False


def _mounts_below(target: Path) -> list[tuple[Path, int]]:
    names = {"ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        point = Path(os.fsdecode(fields[4].encode().decode("unicode_escape").encode("latin-1")))
        if point.is_relative_to(target):
            found.append((point, sum(names.get(option, 0) for option in fields[5].split(","))))
    return found


def own_user_namespace() -> None:
    """Enter a new user namespace in which the user and group keep their numbers. Needs a single thread."""
    user, group = os.getuid(), os.getgid()
    # A process that has changed its user owns no such file, and would be nobody in there.
    if not os.access("/proc/self/uid_map", os.W_OK):
        raise OSError("a process that has changed its user can make no user namespace")
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def is_capable() -> bool:
    """Whether this process holds CAP_SYS_ADMIN, which namespaces and mounts need."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 21 & 1)
    return False


def drop_capabilities() -> None:
    """Give up every capability for good: what is left is what any process of this user may do."""
    with contextlib.suppress(OSError):
        _check(_libc.prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear ambient capabilities")
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # Past the last one that this kernel knows, or not permitted and then not held.
            break
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.syscall(_number("capset"), header, bytes(24)), "capset")


def end_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
