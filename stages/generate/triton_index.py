"""Element offsets as Triton expressions of a flat coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from math import prod
from operator import mul

from kernelwright.stages.generate.ir import FusedKernel

INT32_LIMIT = 2**31 - 2**17
"""Offsets from here on need 64 bits; the margin covers the masked lanes of the last block."""


def offset(point: str, sizes: Sequence[int], strides: Sequence[int]) -> str:
    """Offset of the element at `point`, a flat row-major coordinate over `sizes`; empty when no dimension moves it.

    Neighbouring dimensions that step alike are taken together, so that a contiguous tensor gives `point` itself, a row
    vector `point % n`, a channel vector `point // (h * w) % c`.
    """
    groups = _merge([(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1])
    inner_sizes = list(accumulate((n for n, _ in reversed(groups)), mul, initial=1))[-2::-1] if groups else []
    terms = []
    for position, ((size, stride), inner) in enumerate(zip(groups, inner_sizes, strict=True)):
        if stride == 0:
            continue
        term = point if inner == 1 else f"{point} // {inner}"
        if position > 0:
            term = f"{term} % {size}"
        if stride != 1:
            term = f"({term}) * {stride}" if " " in term else f"{term} * {stride}"
        terms.append(f"({term})" if "%" in term or "//" in term else term)
    return " + ".join(terms)


def _merge(dimensions: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join each (size, stride) with the one to its right where both together step evenly."""
    merged: list[tuple[int, int]] = []
    for size, stride in reversed(dimensions):
        if merged and stride == merged[0][0] * merged[0][1]:
            merged[0] = (size * merged[0][0], merged[0][1])
        else:
            merged.insert(0, (size, stride))
    return merged


class Index(StrEnum):
    """How wide a kernel's offsets are. 64 bits cost registers, and several times the work in each division."""

    INT32 = "int32"
    INT64 = "int64"
    BY_SIZE = "by_size"
    """Chosen at launch, where the number of rows is not known before."""


def index_of(kernel: FusedKernel, free: bool) -> Index:
    """The width that the kernel needs; `free`: the first dimension may have another size at run time."""
    reach = [sum((n - 1) * s for n, s in zip(kernel.space, load.strides, strict=True)) for load in kernel.loads]
    if max([prod(kernel.space), *reach]) >= INT32_LIMIT:
        return Index.INT64
    return Index.BY_SIZE if free else Index.INT32
