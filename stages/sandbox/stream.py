"""The one stream of calls by which every runner is driven, whether a call is timed, compared, both or neither.

A region is `begin`, a number of calls, and on CUDA `end`. The calls travel in chunks of random length, two of which are
under way at a time: a runner never knows whether more will come, and no reply is waited for while it works. What a
chunk is to find may be written while the runner works on the one before: of that no output stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kernelwright.stages.sandbox.pool import Runner

MAX_CHUNK = 64
"""Calls in one message at most: the overhead of a message is then under a microsecond a call."""
IN_FLIGHT = 2

Before = Callable[[int], bool]
"""Told the number of a chunk just before it is sent, when all chunks but the one before it have been answered; says
whether it has written anything that the chunk is to find."""


def chunks(slots: Sequence[int], source: random.Random, longest: int = MAX_CHUNK) -> list[list[int]]:
    """Cut a region's calls into messages. The last holds both calls whose outputs stay."""
    final = max(0, len(slots) - source.randint(2, max(2, longest)))
    found, start = [], 0
    while start < final:
        end = min(final, start + source.randint(1, longest))
        found.append(list(slots[start:end]))
        start = end
    return [*found, list(slots[final:])] if slots else []


def begin(runner: Runner, timeout_s: float, *, restore: bool) -> None:
    """Outside of every clock: put the runner's state back, and poison its free memory."""
    runner.ask("begin", timeout_s, restore=restore)


def call(runner: Runner, pieces: Sequence[Sequence[int]], timeout_s: float, before: Before | None = None) -> None:
    """Send a region's chunks and wait until the last is answered. Raises RunnerFailed."""
    for number, slots in enumerate(pieces):
        if number >= IN_FLIGHT:
            runner.answer(timeout_s)
        if before is not None:
            before(number)
        runner.post("call", slots=slots)
    for _ in range(min(IN_FLIGHT, len(pieces))):
        runner.answer(timeout_s)


def region(runner: Runner, slots: Sequence[int], timeout_s: float, source: random.Random, *, restore: bool) -> None:
    """A region that nobody times."""
    begin(runner, timeout_s, restore=restore)
    call(runner, chunks(slots, source), timeout_s)
