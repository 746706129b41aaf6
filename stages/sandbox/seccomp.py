"""A filter over system calls, as a classic BPF program: what a candidate's process may no longer ask the kernel for.

The filter cannot be taken off again and is inherited. It sees numbers and plain arguments, never what a pointer leads
to: no rule about a path is possible here. A refused call fails with EPERM, so that Python raises PermissionError and
the reason shows. Formats: https://docs.kernel.org/userspace-api/seccomp_filter.html, and `linux/seccomp.h`,
`linux/audit.h`, `asm/unistd.h` for the numbers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct

from kernelwright.stages.sandbox import linux

_X86_64, _AARCH64 = 0, 1
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
"""On x86_64 the same kernel serves a second set of numbers, above this bit."""

_LOAD_WORD, _JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the record that the filter sees: 8 bytes an argument, the low half first."""
_CLONE_THREAD = 0x00010000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP = 1, 22
_PR_SET_NO_NEW_PRIVS = linux.PR_SET_NO_NEW_PRIVS
_SECCOMP_MODE_FILTER = 2

# name: (x86_64, aarch64); None where the architecture has no such call.
_STARTS_PROGRAMS = {"execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None)}
_REACHES_OTHERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "tkill": (200, 130),
    "migrate_pages": (256, 238),
    # System V objects and message queues outlive the process that made them.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
}
_CHANGES_THE_MACHINE = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "syslog": (103, 116),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # Its requests are carried out by the kernel without passing this filter.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "fanotify_init": (300, 262),
    "personality": (135, 92),
    "setpriority": (141, 140),
    # A filter of its own could answer calls with values of its choice.
    "seccomp": (317, 277),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_PRCTL, _PRLIMIT = (157, 167), (302, 261)
_SIGACTION = (13, 134)
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGTRAP)
"""A handler of these can put off work until its result is read."""
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)}

Instruction = tuple[int, int, int, int]
"""Code, jump when true, jump when false (both in instructions to skip), constant."""


def install(*, may_start: bool, may_signal: bool, families: tuple[int, ...]) -> None:
    """Filter this process for good. Raises OSError where the kernel or the architecture offers no filter.

    `may_start`: programs and processes may be started. `may_signal`: other processes may be signalled.
    `families`: the socket families that may be opened.
    """
    program = assemble(os.getpid(), may_start=may_start, may_signal=may_signal, families=families)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    linux.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    pointer = ctypes.create_string_buffer(header, len(header))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer, 0, 0) != 0:
        code_number = ctypes.get_errno()
        raise OSError(code_number, f"seccomp: {os.strerror(code_number)}")


def assemble(own_pid: int, *, may_start: bool, may_signal: bool, families: tuple[int, ...]) -> list[Instruction]:
    """The filter's program for this machine."""
    architecture = _AUDIT_ARCH.get(linux.machine())
    if architecture is None:
        raise OSError(errno.ENOSYS, f"seccomp: no filter is written for {linux.machine()}")
    column = _X86_64 if linux.machine() == "x86_64" else _AARCH64
    program: list[Instruction] = [(_LOAD_WORD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, architecture), _refuse()]
    program.append((_LOAD_WORD, 0, 0, _NUMBER))
    if column == _X86_64:
        program += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    for numbers in (_REACHES_OTHERS | _CHANGES_THE_MACHINE | ({} if may_start else _STARTS_PROGRAMS)).values():
        program += _when(numbers[column], [_refuse()])
    for numbers in _SIGNALS.values() if not may_signal else ():
        program += _when(numbers[column], _unless_argument(0, (own_pid,)))
    if not may_start:
        # glibc falls back to clone, whose flags are a plain argument.
        program += _when(_CLONE3[column], [_refuse(errno.ENOSYS)])
        program += _when(_SIGACTION[column], _if_argument(0, _FAULTS))
        program += _when(_CLONE[column], [_argument(0), (_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD), _refuse(), _allow()])
    program += _when(_SOCKET[column], _unless_argument(0, families))
    program += _when(_SOCKETPAIR[column], _unless_argument(0, (socket.AF_UNIX,)))
    program += _when(_PRLIMIT[column], _unless_argument(0, (0, own_pid)))
    program += _when(_PRCTL[column], _if_argument(0, (_PR_SET_PDEATHSIG, _PR_SET_SECCOMP)))
    return [*program, _allow()]


def _refuse(code: int = errno.EPERM) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _allow() -> Instruction:
    return (_RETURN, 0, 0, _ALLOW)


def _argument(index: int) -> Instruction:
    # The kernel takes these arguments as 32-bit integers: the low half decides.
    return (_LOAD_WORD, 0, 0, _FIRST_ARGUMENT + 8 * index)


def _when(number: int | None, then: list[Instruction]) -> list[Instruction]:
    """`then`, which must return, for one system call."""
    return [] if number is None else [(_JUMP_EQUAL, 0, len(then), number), *then]


def _unless_argument(index: int, allowed: tuple[int, ...]) -> list[Instruction]:
    tests = [(_JUMP_EQUAL, len(allowed) - i, 0, value & 0xFFFFFFFF) for i, value in enumerate(allowed)]
    return [_argument(index), *tests, _refuse(), _allow()]


def _if_argument(index: int, refused: tuple[int, ...]) -> list[Instruction]:
    tests = [(_JUMP_EQUAL, len(refused) - i, 0, value & 0xFFFFFFFF) for i, value in enumerate(refused)]
    return [_argument(index), *tests, _allow(), _refuse()]
