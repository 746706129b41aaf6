"""What timed calls are given: a ring of argument sets whose values change all the time, and the answers to them.

Every round each set holds one of a few drawn ones anew, its floating values multiplied along two dimensions by factors
that nobody has seen: no answer follows from an earlier one but by working it out. Within a region a set that is called
again is changed before, at a few places that nobody is told.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.stages.measure import devices
from kernelwright.stages.measure.timer import Calibration
from kernelwright.stages.sandbox.arena import Arena, Block
from kernelwright.stages.verify.cases import Case, copy_of
from kernelwright.stages.verify.oracle import Expected, Oracle

LEAST_FACTOR = 0.98
"""Floating inputs are multiplied by factors whose product is between this and 1: signs, zeros and [0, 1] stay."""
LEAST_SLOTS, MAX_SLOTS = 2, 64
WINDOWS = 1024
"""Places in a row of factors at which those of a set may begin."""
LONGEST_ROW = 2**22
"""Factors in a row at most: a longer dimension gets one for all of it."""
SLICE_BYTES = 2**16
"""A first dimension's slice may be this large; otherwise the longest dimension is cut, whose slices are smallest."""
SALT_BYTES = 2**18
"""What a change within a region writes at most: it must be over before its set is called."""
SALTED_PART = 8
"""One part in so many of an argument is changed at most."""


@dataclass(frozen=True)
class Slices:
    """Slices of one argument, taken from another place of what was drawn for it."""

    argument: int
    dim: int
    start: int
    source: int
    count: int

    def write(self, target: torch.Tensor, drawn: torch.Tensor) -> None:
        """Put them there."""
        target.narrow(self.dim, self.start, self.count).copy_(drawn.narrow(self.dim, self.source, self.count))


@dataclass(frozen=True)
class Content:
    """What one slot holds, in a few bytes."""

    drawn: Case
    factors: tuple[tuple[torch.Tensor | float, ...], ...]
    """By argument; they are broadcast over it one after the other. Empty: the values as drawn."""
    salts: tuple[Slices, ...] = ()

    def write(self, targets: Sequence[torch.Tensor]) -> None:
        """Write the arguments' values."""
        for i, (target, drawn, factors) in enumerate(zip(targets, self.drawn.tensors, self.factors, strict=True)):
            if not factors:
                target.copy_(drawn)
                continue
            torch.mul(drawn, factors[0], out=target)
            for factor in factors[1:]:
                target.mul_(factor)
            for salt in self.salts:
                if salt.argument == i:
                    salt.write(target, drawn)

    def case(self) -> Case:
        """The very values, computed again by the same operations."""
        tensors = tuple(copy_of(t) for t in self.drawn.tensors)
        self.write(tensors)
        return dataclasses.replace(self.drawn, tensors=tensors)


class Ring:
    """The argument sets of timed calls, and the answers to whatever they hold."""

    def __init__(self, oracle: Oracle, drawn: list[Case], like: Expected, device: str) -> None:
        self.cache_bytes = devices.last_level_cache_bytes(device)
        wanted = -(-2 * self.cache_bytes // max(drawn[0].nbytes, 1))
        block = Block(device)
        self.arena = Arena(drawn[0], like, min(max(wanted, LEAST_SLOTS), MAX_SLOTS), block)
        block.allocate()
        self.slots = list(self.arena.slots)
        self.in_place = like.in_place
        self.changes_state = like.changes_state
        self.lends_inputs = like.in_place or any(alias is not None for alias in like.aliases)
        """Whether an output may lie in the memory of an argument."""
        self.calibrations: dict[str, Calibration] = {}
        """Of the baselines, which stay."""
        self._contents: dict[int, Content] = {}
        self._views = {slot: self.arena.read_slot(slot) for slot in self.slots}
        self._rows: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.redraw(oracle, drawn)

    @property
    def cold(self) -> bool:
        """Whether consecutive calls find their inputs outside of the last-level cache."""
        return self.drawn[0].nbytes * len(self.slots) >= 2 * self.cache_bytes

    def redraw(self, oracle: Oracle, drawn: list[Case]) -> None:
        """Other parameters and other drawn sets."""
        self.oracle = oracle
        self.drawn = drawn
        self._loose = [_loose([case.tensors[i] for case in drawn]) for i in range(len(drawn[0].tensors))]
        self.arena.write_state(drawn[0])
        self.refill(random.Random(0))

    def refill(self, source: random.Random) -> None:
        """New values in every slot."""
        for slot in self.slots:
            drawn = source.choice(self.drawn)
            factors = tuple(
                self._factors(t, loose, source) for t, loose in zip(drawn.tensors, self._loose, strict=True)
            )
            self._contents[slot] = Content(drawn, factors)
            self._contents[slot].write(self._views[slot])
        self.arena.fence()

    def salt(self, slot: int, source: random.Random, *, least: bool = False) -> None:
        """Change slices of a slot's arguments; `least`: one slice of each. On CUDA in the order of our stream."""
        content = self._contents[slot]
        salts = [
            _slices(i, t, source, least=least)
            for i, (t, loose) in enumerate(zip(content.drawn.tensors, self._loose, strict=True))
            if loose
        ]
        for salt in salts:
            salt.write(self._views[slot][salt.argument], content.drawn.tensors[salt.argument])
        self._contents[slot] = dataclasses.replace(content, salts=(*content.salts, *salts))

    def spoil(self, slots: Sequence[int]) -> None:
        """Take the arguments away: an output that has not been worked out by now never will be."""
        for slot in slots:
            self.arena.poison_slot(slot)

    def mend(self, slots: Sequence[int]) -> None:
        """Put back what `spoil` took."""
        for slot in slots:
            self._contents[slot].write(self._views[slot])
        self.arena.fence()

    def answer(self, slot: int) -> Expected:
        """What the reference gives for what a slot holds."""
        return self.oracle.expect(self._contents[slot].case())

    def _factors(self, t: torch.Tensor, loose: bool, source: random.Random) -> tuple[torch.Tensor | float, ...]:
        if not t.is_floating_point():
            return ()
        if not loose:
            return (source.uniform(LEAST_FACTOR, 1.0),)
        rows = [self._row(n, t.dtype, t.device, source) for n in t.shape[-2:]]
        return tuple(row.view(-1, *[1] * after) for row, after in zip(rows, range(len(rows) - 1, -1, -1), strict=True))

    def _row(self, length: int, dtype: torch.dtype, device: torch.device, source: random.Random) -> torch.Tensor:
        """Factors along one dimension: a window of a longer row that is drawn once."""
        length = length if length <= LONGEST_ROW else 1
        key = length, dtype
        if key not in self._rows:
            drawn = torch.rand(length + WINDOWS, device=device, dtype=torch.float32)
            self._rows[key] = (math.sqrt(LEAST_FACTOR) + drawn * (1.0 - math.sqrt(LEAST_FACTOR))).to(dtype)
        start = source.randrange(WINDOWS)
        return self._rows[key][start : start + length]


def _loose(draws: Sequence[torch.Tensor]) -> bool:
    """Whether an argument's elements stand on their own: not sorted, no symmetric and no triangular matrix."""
    if not draws[0].is_floating_point() or draws[0].numel() < 2:
        return False
    dims = {0, draws[0].dim() - 1}
    if any(all(_sorted(d, dim) for d in draws) for dim in dims if draws[0].shape[dim] > 2):
        return False
    square = draws[0].dim() >= 2 and draws[0].shape[-1] == draws[0].shape[-2] > 1
    return not (square and all(_bound(d) for d in draws))


def _sorted(x: torch.Tensor, dim: int) -> bool:
    below, above = x.narrow(dim, 0, x.shape[dim] - 1), x.narrow(dim, 1, x.shape[dim] - 1)
    return bool((below <= above).all()) or bool((below >= above).all())


def _bound(x: torch.Tensor) -> bool:
    return torch.equal(x, x.mT) or torch.equal(x, x.tril()) or torch.equal(x, x.triu())


def _slices(argument: int, t: torch.Tensor, source: random.Random, *, least: bool) -> Slices:
    """Between one slice and an eighth of all, small numbers as likely as large ones."""
    nbytes = t.numel() * t.element_size()
    dim = 0
    if t.shape[0] < 2 or nbytes // t.shape[0] > SLICE_BYTES:
        dim = max(range(t.dim()), key=lambda d: t.shape[d])
    length = t.shape[dim]
    most = max(1, min(length // SALTED_PART, SALT_BYTES * length // nbytes))
    count = 1 if least else int(2 ** source.uniform(0, math.log2(most)))
    start, shift = source.randrange(length - count + 1), source.randrange(1, length)
    return Slices(argument, dim, start, (start + shift) % (length - count + 1), count)
