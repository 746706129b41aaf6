"""Shared memory of one problem in one layout: a ring of argument sets, the module's state, and buffers for outputs.

The referee writes and reads here; every runner maps the same blocks. For timing the ring is larger than the last-level
cache where memory allows, so that consecutive timed calls find their inputs cold, on both sides of a comparison alike.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from kernelwright.stages.sandbox import memory
from kernelwright.stages.sandbox.pool import Runner
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected

MAP_TIMEOUT_S = 60.0
_numbers = itertools.count()
"""Segments and slots are numbered through the whole process: a runner may map several arenas."""


class Block:
    """One shared segment, for one arena or several: mapping a segment of a GPU's memory costs a runner some 15 ms."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.number = next(_numbers)
        self.places: list[memory.Place] = []
        self.nbytes = 0
        self._segment: memory.Segment | None = None

    @property
    def segments(self) -> dict[int, memory.Segment]:
        """By number, as places name it. Empty until it is allocated."""
        return {} if self._segment is None else {self.number: self._segment}

    def reserve(self, tensors: Sequence[torch.Tensor]) -> list[memory.Place]:
        """Room for tensors like these, with guard bands."""
        places, self.nbytes = memory.layout(tensors, self.number, self.nbytes)
        self.places += places
        return places

    def allocate(self) -> None:
        """Take the memory for all that was reserved."""
        self._segment = memory.allocate(self.nbytes, self.device)
        self.mend_guards()

    def guards_broken(self) -> int:
        """How many bytes outside of every tensor have changed."""
        assert self._segment is not None
        return int((torch.cat(memory.guards(self.places, self._segment)) != memory.GUARD_BYTE).sum())

    def mend_guards(self) -> None:
        """Fill the bytes outside of every tensor again: the next candidate answers for itself only."""
        assert self._segment is not None
        for guard in memory.guards(self.places, self._segment):
            guard.fill_(memory.GUARD_BYTE)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def map(self, runner: Runner) -> None:
        """Map it in a runner."""
        assert self._segment is not None
        fds = () if self._segment.fd is None else (self._segment.fd,)
        runner.ask("attach", MAP_TIMEOUT_S, fds, segments=[[self.number, self._segment.handle]])

    def close(self) -> None:
        """Give the memory back. No view of it may be used afterwards."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None


class Arena:
    """Places for `slots` argument sets like `case`'s, one state like `case`'s, and outputs like `expected`'s."""

    def __init__(self, case: Case, expected: Expected, slots: int, block: Block) -> None:
        """Reserves its places; they can be used once the block is allocated."""
        self.block = block
        self.device = block.device
        self.structure = case.structure
        every = block.reserve(list(case.tensors) * slots)
        width = len(case.tensors)
        self.slots = {next(_numbers): every[i * width : (i + 1) * width] for i in range(slots)}
        """The tensors' places by slot number."""
        state = list(case.state.values())
        self.state_places = dict(zip(case.state, block.reserve(state), strict=True))
        self.state_after_places = dict(zip(case.state, block.reserve(state), strict=True))
        self.output_places = block.reserve(expected.eager)

    @property
    def segments(self) -> dict[int, memory.Segment]:
        """The block's."""
        return self.block.segments

    def write_slot(self, slot: int, case: Case) -> None:
        """Fill one argument set from the case's private copy."""
        self.begin_writing(slot, case)
        self.fence()

    def begin_writing(self, slot: int, case: Case) -> None:
        """As `write_slot`, without waiting: on CUDA the values arrive in the order of the referee's stream."""
        for place, tensor in zip(self.slots[slot], case.tensors, strict=True):
            place.view(self.segments).copy_(tensor)

    def poison_slot(self, slot: int) -> None:
        """Fill one argument set with what no right answer follows from."""
        for place in self.slots[slot]:
            poison(place.view(self.segments))
        self.fence()

    def read_slot(self, slot: int) -> list[torch.Tensor]:
        """The argument set's tensors as they are now."""
        return [place.view(self.segments) for place in self.slots[slot]]

    def write_state(self, case: Case) -> None:
        """Put the case's parameters and buffers where the runners take them from."""
        for name, place in self.state_places.items():
            place.view(self.segments).copy_(case.state[name])
        self.fence()

    def load_state(self, runner: Runner, timeout_s: float) -> None:
        """Let a runner's module take the parameters and buffers that were written, now and at each `begin`."""
        runner.ask("state", timeout_s, state=[[name, _fields(p)] for name, p in self.state_places.items()])

    def fetch_state(self, runner: Runner, timeout_s: float) -> dict[str, torch.Tensor]:
        """The parameters and buffers of a runner's module as they are now."""
        views = {name: place.view(self.segments) for name, place in self.state_after_places.items()}
        for view in views.values():
            poison(view)
        self.fence()
        places = [[name, _fields(p)] for name, p in self.state_after_places.items()]
        runner.ask("fetch_state", timeout_s, state=places)
        return {name: view.clone() for name, view in views.items()}

    def fetch(self, runner: Runner, timeout_s: float, back: int = 1) -> list[torch.Tensor]:
        """One of the runner's kept outputs, copied into poisoned buffers and from there to memory of our own."""
        self.poison_outputs()
        return self.collect(runner, timeout_s, back)

    def poison_outputs(self) -> None:
        """Make the outputs' buffers ready, so that nothing of an earlier output is left in them."""
        for place in self.output_places:
            poison(place.view(self.segments))
        self.fence()

    def collect(self, runner: Runner, timeout_s: float, back: int = 1) -> list[torch.Tensor]:
        """The second half of `fetch`: the runner orders its copy right after its calls."""
        runner.ask("fetch", timeout_s, back=back, tensors=[_fields(p) for p in self.output_places])
        return [place.view(self.segments).clone() for place in self.output_places]

    def fence(self) -> None:
        """Wait until what was written is there."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def connect(runner: Runner, arenas: Iterable[Arena]) -> None:
    """Map the arenas' blocks in a runner, each once, and name their slots."""
    arenas = list(arenas)
    for block in {arena.block.number: arena.block for arena in arenas}.values():
        block.map(runner)
    for arena in arenas:
        for slot, places in arena.slots.items():
            tensors = [_fields(place) for place in places]
            runner.ask("slot", MAP_TIMEOUT_S, slot=slot, arguments=arena.structure, tensors=tensors)


def disconnect(runner: Runner, arenas: Iterable[Arena]) -> None:
    """Let a runner forget the arenas."""
    arenas = list(arenas)
    slots = [slot for arena in arenas for slot in arena.slots]
    runner.ask("detach", MAP_TIMEOUT_S, slots=slots, segments=list({arena.block.number for arena in arenas}))


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no honest result is likely to be: nan, the dtype's smallest integer, True."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def _fields(place: memory.Place) -> list[Any]:
    return list(dataclasses.astuple(place))
