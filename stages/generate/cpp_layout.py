"""How a kernel's iteration space is walked in C++: as rows, whose elements have one stride in every tensor."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from kernelwright.stages.generate.ir import FusedKernel, Load


@dataclass(frozen=True)
class Layout:
    """The space as rows of `length` elements; `flat` when rows do not matter and any split will do."""

    outer: tuple[int, ...]
    """Sizes of the dimensions that count the rows."""
    inner: tuple[int, ...]
    """Sizes of the trailing dimensions that make up a row."""
    flat: bool

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.inner)

    @property
    def rows(self) -> int:
        """Rows of the example's shape."""
        return math.prod(self.outer)

    def row_offset(self, load: Load) -> str:
        """The offset of a row's first element as C++ over `row`; empty where all rows start at the same."""
        return _offset(self.outer, load.strides[: len(self.outer)])

    def row_step(self, load: Load) -> int | None:
        """Elements from one row to the next, where that is the same everywhere."""
        offset = _merged(self.outer, load.strides[: len(self.outer)])
        return offset[0][1] if len(offset) == 1 else None

    def element_stride(self, load: Load) -> int:
        """Elements from one point of a row to the next."""
        strides = load.strides[len(self.outer) :]
        return next((s for s, n in zip(reversed(strides), reversed(self.inner), strict=True) if n > 1), 0)


def layout(kernel: FusedKernel) -> Layout | None:
    """The walk; None when a row's elements have no single stride in some tensor."""
    rank = len(kernel.space)
    walks = [load.strides for load in kernel.loads]
    if kernel.reduced:
        inner = kernel.reduced
        if not all(_collapses(kernel.space, strides, inner) for strides in walks):
            return None
    else:
        # Rows as long as they can be. A single dimension always has one stride.
        inner = next(n for n in range(rank, 0, -1) if all(_collapses(kernel.space, strides, n) for strides in walks))
    dense = _dense(kernel.space)
    flat = not kernel.reduced and all(strides == dense or not any(strides) for strides in walks)
    return Layout(kernel.space[: rank - inner], kernel.space[rank - inner :], flat)


def _collapses(space: tuple[int, ...], strides: tuple[int, ...], inner: int) -> bool:
    """Whether the trailing dimensions act as one: each step over the end of one is a step of the next."""
    pairs = [(n, s) for n, s in zip(space[len(space) - inner :], strides[len(space) - inner :], strict=True) if n > 1]
    return all(s == n_next * s_next for (_, s), (n_next, s_next) in itertools.pairwise(pairs))


def _dense(space: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major tensor."""
    strides, step = [], 1
    for size in reversed(space):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _merged(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(size, stride) pairs in which neighbours that act as one dimension are one."""
    groups: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if groups and groups[-1][1] == stride * size:
            groups[-1] = (groups[-1][0] * size, stride)
        else:
            groups.append((size, stride))
    return groups


def _offset(sizes: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """The dot product of a row's coordinates and the strides. The first size is never used: it may vary at run time."""
    groups = _merged(sizes, strides)
    terms, below = [], 1
    for position in range(len(groups) - 1, -1, -1):
        size, stride = groups[position]
        if stride:
            coordinate = "row" if below == 1 else f"row / {below}"
            if position > 0:
                coordinate = f"{coordinate} % {size}"
            if stride != 1:
                coordinate = f"{coordinate} * {stride}"
            terms.append(coordinate)
        below *= size
    return " + ".join(reversed(terms))
