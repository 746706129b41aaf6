"""Room for several candidates of one problem at once: each lane has argument sets of its own, of every layout."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator, Sequence

from kernelwright.stages.execute import timing
from kernelwright.stages.sandbox.arena import Arena, Block
from kernelwright.stages.verify import memory_needs
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected

MOST_LANES = 28
"""Candidates that a GPU verifies at once: most of it is waiting for contexts and compilers."""
LANES_A_CORE = 2
MEMORY_SHARE = 0.25
"""Of the GPU's free memory, for what lanes hold."""
SLOTS = 3
"""Argument sets that a candidate is verified in: it meets the same buffers with new values, and other buffers."""
OUTPUTS = 6
"""Sets of outputs that a lane and its candidate hold at once at most."""


class Lanes:
    """Arenas by layout, for one candidate at a time each; made when none is free."""

    def __init__(self, cases: Sequence[tuple[Case, Expected]], device: str) -> None:
        self.cases = cases
        self.device = device
        self.count = self._count()
        self.room = threading.Semaphore(self.count)
        """For whoever starts candidates: as many as there are lanes."""
        self._free: queue.SimpleQueue[dict[str, Arena]] = queue.SimpleQueue()

    def _count(self) -> int:
        """How many candidates are verified at once: one on the CPU, whose cores are being timed."""
        if self.device == "cpu":
            return 1
        case, expected = self.cases[0]
        need = SLOTS * case.nbytes + OUTPUTS * sum(t.nbytes for t in expected.eager)
        in_memory = int(MEMORY_SHARE * memory_needs.memory(self.device)[1]) // max(need, 1)
        return max(1, min(MOST_LANES, LANES_A_CORE * ((os.cpu_count() or 1) - 2), in_memory))

    @contextlib.contextmanager
    def one(self) -> Iterator[dict[str, Arena]]:
        """A lane's arenas; that of the task's own layout is `""`."""
        try:
            lane = self._free.get_nowait()
        except queue.Empty:
            lane = self._make()
        lane[""].block.mend_guards()
        try:
            yield lane
        finally:
            self._free.put(lane)

    def _make(self) -> dict[str, Arena]:
        lane: dict[str, Arena] = {}
        block = Block(self.device)
        for case, expected in self.cases:
            if case.layout not in lane:
                large = case.nbytes > timing.SINGLE_ABOVE_BYTES
                lane[case.layout] = Arena(case, expected, 1 if case.layout else SLOTS - large, block)
        block.allocate()
        return lane

    def close(self) -> None:
        """Free the memory of lanes that are not in use."""
        while not self._free.empty():
            self._free.get()[""].block.close()
