"""The zygote: a process that has imported torch and triton, and forks a runner in milliseconds.

It never runs a tensor operation and never creates a CUDA context: a child forked after either cannot use what its
parent had begun (a CPU operation starts the thread pool, and the child then hangs at its first parallel loop). Run as
`python -m kernelwright.stages.sandbox.zygote FD`; `pool.Zygote` is the handle.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.stages.sandbox import confine, keep, linux, view
from kernelwright.stages.sandbox.protocol import Channel, ChannelClosed


def serve(channel: Channel) -> None:
    """Fork on request and tell how children ended, until the owner closes the channel."""
    works = confine.available()
    import torch

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401 - forked children find it imported
    # Imported once here, so that no child pays for it, and since a child may not see the files any more.
    from kernelwright.stages.sandbox import runner  # noqa: F401

    assert not torch.cuda.is_initialized()
    plan = confine.Plan(view.needed(dict(os.environ)), works, works[confine.PROCESSES] is True)
    channel.send({"ready": True, "measures": works})
    while True:
        try:
            message, fds = channel.receive()
        except ChannelClosed:
            break
        if message["do"] == "fork":
            kept = keep.fork_apart(_child(channel, fds[0], message, plan), apart=plan.apart)
            os.close(fds[0])
            threads = sum(1 for _ in Path("/proc/self/task").iterdir())
            channel.send({"pid": kept.runner, "keeper": kept.pid, "first": kept.first, "threads": threads})
        elif message["do"] == "reap":
            pid, status = os.waitpid(message["keeper"], os.WNOHANG)
            channel.send({"status": os.waitstatus_to_exitcode(status) if pid else None})
    # Every keeper is killed as this process ends, and every runner as its keeper does.


def _child(channel: Channel, fd: int, message: dict[str, Any], plan: confine.Plan) -> Callable[[], None]:
    """What a runner does first: give up what it must not have, say so, and serve."""

    def become_runner() -> None:
        channel.close()
        ours = Channel(socket.socket(fileno=fd))
        # What a module prints is not ours to show.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        try:
            home, phase = Path(message["home"]), confine.Phase(message["phase"])
            caches = [Path(cache) for cache in message["caches"]]
            taken = confine.enter(home, phase, caches, confine.Limits(**message["limits"]), plan)
        except OSError as error:
            ours.send({"fault": str(error)})
            return
        ours.send({"entered": taken})
        from kernelwright.stages.sandbox import runner

        runner.main(ours)

    return become_runner


if __name__ == "__main__":
    # Ctrl-C in the terminal reaches the whole foreground group; only the owner decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.end_with_parent()
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
