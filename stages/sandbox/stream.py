"""The one stream of calls by which every runner is driven, whether a call is timed, compared, both or neither.

A region is `begin`, a number of calls, and on CUDA `end`. The calls travel in chunks of random length, two of which are
under way at a time: a runner never knows whether more will come, and no reply is waited for while it works.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernelwright.stages.sandbox.pool import Runner

MAX_CHUNK = 64
"""Calls in one message at most: the overhead of a message is then under a microsecond a call."""
IN_FLIGHT = 2


def chunks(slots: Sequence[int], source: random.Random) -> list[list[int]]:
    """Cut a region's calls into messages."""
    found, start = [], 0
    while start < len(slots):
        length = source.randint(1, MAX_CHUNK)
        found.append(list(slots[start : start + length]))
        start += length
    return found


def begin(runner: Runner, timeout_s: float, *, restore: bool) -> None:
    """Outside of every clock: put the runner's state back, and poison its free memory."""
    runner.ask("begin", timeout_s, restore=restore)


def call(runner: Runner, pieces: Sequence[Sequence[int]], timeout_s: float) -> None:
    """Send a region's chunks and wait until the last is answered. Raises RunnerFailed."""
    for number, slots in enumerate(pieces):
        if number >= IN_FLIGHT:
            runner.answer(timeout_s)
        runner.post("call", slots=slots)
    for _ in range(min(IN_FLIGHT, len(pieces))):
        runner.answer(timeout_s)


def region(runner: Runner, slots: Sequence[int], timeout_s: float, source: random.Random, *, restore: bool) -> None:
    """A region that nobody times."""
    begin(runner, timeout_s, restore=restore)
    call(runner, chunks(slots, source), timeout_s)
