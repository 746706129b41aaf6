"""Shared memory of one problem in one layout: a ring of argument sets, the module's state, and buffers for outputs.

The referee writes and reads here; every runner maps the same blocks. For timing the ring is larger than the last-level
cache where memory allows, so that consecutive timed calls find their inputs cold, on both sides of a comparison alike.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch

from kernelwright.stages.sandbox import memory
from kernelwright.stages.sandbox.pool import Runner
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected

MAP_TIMEOUT_S = 60.0
_numbers = itertools.count()
"""Segments and slots are numbered through the whole process: a runner may map several arenas."""


class Arena:
    """Blocks for `slots` argument sets like `case`'s, one state like `case`'s, and outputs like `expected`'s."""

    def __init__(self, case: Case, expected: Expected, slots: int, device: str) -> None:
        self.device = device
        self.structure = case.structure
        self.segments: dict[int, memory.Segment] = {}
        self._places: dict[int, list[memory.Place]] = {}
        every = self._reserve(list(case.tensors) * slots)
        width = len(case.tensors)
        self.slots = {next(_numbers): every[i * width : (i + 1) * width] for i in range(slots)}
        """The tensors' places by slot number."""
        state = list(case.state.values())
        self.state_places = dict(zip(case.state, self._reserve(state), strict=True))
        self.state_after_places = dict(zip(case.state, self._reserve(state), strict=True))
        self.output_places = self._reserve(list(expected.eager))
        self.mend_guards()

    def _reserve(self, tensors: list[torch.Tensor]) -> list[memory.Place]:
        number = next(_numbers)
        places, nbytes = memory.layout(tensors, number)
        self.segments[number] = memory.allocate(nbytes, self.device)
        self._places[number] = places
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
        for slot, places in self.slots.items():
            runner.ask("slot", MAP_TIMEOUT_S, slot=slot, arguments=self.structure, tensors=[_fields(p) for p in places])

    def disconnect(self, runner: Runner) -> None:
        """Let a runner forget the blocks."""
        runner.ask("detach", MAP_TIMEOUT_S, slots=list(self.slots), segments=list(self.segments))

    def write_slot(self, slot: int, case: Case) -> None:
        """Fill one argument set from the case's private copy."""
        for place, tensor in zip(self.slots[slot], case.tensors, strict=True):
            place.view(self.segments).copy_(tensor)
        self._fence()

    def write_scaled(self, slot: int, case: Case, factor: float) -> None:
        """Fill one argument set with the case's values, the floating ones multiplied by `factor`."""
        for place, tensor in zip(self.slots[slot], case.tensors, strict=True):
            view = place.view(self.segments)
            if tensor.is_floating_point():
                torch.mul(tensor, factor, out=view)
            else:
                view.copy_(tensor)
        self._fence()

    def read_slot(self, slot: int) -> list[torch.Tensor]:
        """The argument set's tensors as they are now."""
        return [place.view(self.segments) for place in self.slots[slot]]

    def write_state(self, case: Case) -> None:
        """Put the case's parameters and buffers where the runners take them from."""
        for name, place in self.state_places.items():
            place.view(self.segments).copy_(case.state[name])
        self._fence()

    def load_state(self, runner: Runner, timeout_s: float) -> None:
        """Let a runner's module take the parameters and buffers that were written, now and at each `begin`."""
        runner.ask("state", timeout_s, state=[[name, _fields(p)] for name, p in self.state_places.items()])

    def fetch_state(self, runner: Runner, timeout_s: float) -> dict[str, torch.Tensor]:
        """The parameters and buffers of a runner's module as they are now."""
        views = {name: place.view(self.segments) for name, place in self.state_after_places.items()}
        for view in views.values():
            poison(view)
        self._fence()
        places = [[name, _fields(p)] for name, p in self.state_after_places.items()]
        runner.ask("fetch_state", timeout_s, state=places)
        return {name: view.clone() for name, view in views.items()}

    def fetch(self, runner: Runner, timeout_s: float, back: int = 1) -> list[torch.Tensor]:
        """One of the runner's kept outputs, copied into poisoned buffers and from there to memory of our own."""
        views = [place.view(self.segments) for place in self.output_places]
        for view in views:
            poison(view)
        self._fence()
        runner.ask("fetch", timeout_s, back=back, tensors=[_fields(p) for p in self.output_places])
        return [view.clone() for view in views]

    def guards_broken(self) -> int:
        """How many bytes outside of every tensor have changed."""
        return sum(
            int((torch.cat(memory.guards(self._places[number], segment)) != memory.GUARD_BYTE).sum())
            for number, segment in self.segments.items()
        )

    def mend_guards(self) -> None:
        """Fill the bytes outside of every tensor again: the next candidate answers for itself only."""
        for number, segment in self.segments.items():
            for guard in memory.guards(self._places[number], segment):
                guard.fill_(memory.GUARD_BYTE)
        self._fence()

    def close(self) -> None:
        """Free the blocks. No view of them may be used afterwards."""
        for segment in self.segments.values():
            segment.close()
        self.segments.clear()

    def _fence(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The values that `write_scaled` writes for a tensor."""
    return torch.mul(tensor, factor) if tensor.is_floating_point() else tensor


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
