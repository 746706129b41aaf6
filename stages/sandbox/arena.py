"""The shared memory of one problem: a ring of argument sets, the parameters, and the outputs' buffers.

The referee writes and reads here; every runner maps the same blocks. The ring is larger than the last-level cache where
memory allows, so that consecutive timed calls find their inputs cold, on both sides of a comparison alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from kernelwright.stages.sandbox import memory
from kernelwright.stages.sandbox.pool import Runner
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected

STATE, OUTPUTS, FIRST_SLOT = 0, 1, 2
MAP_TIMEOUT_S = 60.0


class Arena:
    """Blocks for `slots` argument sets like `case`'s, one state like `case`'s, and outputs like `expected`'s."""

    def __init__(self, case: Case, expected: Expected, slots: int, device: str) -> None:
        self.device = device
        self.slots = slots
        self.structure = case.structure
        self.segments: dict[int, memory.Segment] = {}
        self.state_places = dict(zip(case.state, self._reserve(STATE, list(case.state.values())), strict=True))
        self.output_places = self._reserve(OUTPUTS, list(expected.eager))
        self.slot_places = [self._reserve(FIRST_SLOT + i, list(case.tensors)) for i in range(slots)]

    def _reserve(self, segment: int, tensors: list[torch.Tensor]) -> list[memory.Place]:
        places, nbytes = memory.layout(tensors, segment)
        self.segments[segment] = memory.allocate(nbytes, self.device)
        return places

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(s.data.numel() for s in self.segments.values())

    def connect(self, runner: Runner) -> None:
        """Map every block in a runner and name its slots."""
        order = list(self.segments.items())
        runner.ask(
            "attach",
            MAP_TIMEOUT_S,
            tuple(s.fd for _, s in order if s.fd is not None),
            segments=[[number, s.handle] for number, s in order],
        )
        for slot, places in enumerate(self.slot_places):
            runner.ask("slot", MAP_TIMEOUT_S, slot=slot, arguments=self.structure, tensors=[_fields(p) for p in places])

    def write_slot(self, slot: int, case: Case) -> None:
        """Fill one argument set from the case's private copy."""
        for place, tensor in zip(self.slot_places[slot], case.tensors, strict=True):
            place.view(self.segments).copy_(tensor)
        self._fence()

    def read_slot(self, slot: int) -> list[torch.Tensor]:
        """The argument set's tensors as they are now."""
        return [place.view(self.segments) for place in self.slot_places[slot]]

    def write_state(self, case: Case, runner: Runner, timeout_s: float) -> None:
        """Load the case's parameters and buffers into a runner's module."""
        for name, place in self.state_places.items():
            place.view(self.segments).copy_(case.state[name])
        self._fence()
        runner.ask("parameters", timeout_s, state=[[name, _fields(p)] for name, p in self.state_places.items()])

    def fetch(self, runner: Runner, timeout_s: float) -> list[torch.Tensor]:
        """The runner's last output, copied into poisoned buffers and from there to memory of our own."""
        views = [place.view(self.segments) for place in self.output_places]
        for view in views:
            poison(view)
        self._fence()
        runner.ask("fetch", timeout_s, tensors=[_fields(p) for p in self.output_places], device=self.device)
        return [view.clone() for view in views]

    def close(self) -> None:
        """Free the blocks. No view of them may be used afterwards."""
        for segment in self.segments.values():
            segment.close()
        self.segments.clear()

    def _fence(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


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
