"""The zygote: a process that has imported torch and triton, and forks a runner in milliseconds.

It never runs a tensor operation and never creates a CUDA context: a child forked after either cannot use what its
parent had begun (a CPU operation starts the thread pool, and the child then hangs at its first parallel loop). Run as
`python -m kernelwright.stages.sandbox.zygote FD`; `pool.Zygote` is the handle.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000


def serve(channel: Channel) -> None:
    """Fork on request and tell how children ended, until the owner closes the channel."""
    import torch

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401 - forked children find it imported
    # Imported once here, so that no child pays for it.
    from kernelwright.stages.sandbox import runner  # noqa: F401

    assert not torch.cuda.is_initialized()
    channel.send({"ready": True})
    children: set[int] = set()
    while True:
        try:
            message, fds = channel.receive()
        except ChannelClosed:
            break
        if message["do"] == "fork":
            pid = os.fork()
            if pid == 0:
                channel.close()
                _become_runner(fds[0], Path(message["home"]))
            os.close(fds[0])
            children.add(pid)
            channel.send({"pid": pid, "threads": sum(1 for _ in Path("/proc/self/task").iterdir())})
        elif message["do"] == "reap":
            pid, status = os.waitpid(message["pid"], 0)
            children.discard(pid)
            channel.send({"status": os.waitstatus_to_exitcode(status)})
    for pid in children:
        _kill_group(pid)


def _become_runner(fd: int, home: Path) -> None:
    """In the forked child: an own process group, an own home, no network where the kernel lets us, then serve."""
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.unshare(CLONE_NEWNET)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.update(HOME=str(home), TMPDIR=str(home), TRITON_CACHE_DIR=str(home / "triton"))
    os.chdir(home)
    # What a module prints is not ours to show.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    from kernelwright.stages.sandbox import runner

    runner.main(Channel(socket.socket(fileno=fd)))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    # Ctrl-C in the terminal reaches the whole foreground group; only the owner decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
