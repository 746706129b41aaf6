"""How probes change values: each function takes a tensor and gives another of the same shape, strides and dtype."""

from __future__ import annotations

import torch

from kernelwright.stages.verify.cases import copy_of
from kernelwright.stages.verify.domains import Domain, Kind

SWAPS = 64
"""Pairs that `swap_inside` tries before it takes one whose sums only nearly agree."""
HUGE = 1000.0
"""The one huge value, in units of the largest that was drawn."""


def like(template: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` in the template's dtype and strides."""
    made = copy_of(template)
    return made.copy_(values)


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """x * factor."""
    return like(x, x.double() * factor)


def shifted(x: torch.Tensor, offset: float) -> torch.Tensor:
    """x + offset."""
    return like(x, x.double() + offset)


def constant(x: torch.Tensor, value: float) -> torch.Tensor:
    """The same number everywhere."""
    return torch.full_like(x, value)


def one_hot(x: torch.Tensor, peak: float, generator: torch.Generator) -> torch.Tensor:
    """Zeros, and one element of each row at `peak`."""
    if x.dim() == 0 or x.numel() == 0:
        return copy_of(x)
    made = torch.zeros_like(x)
    where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
    return made.scatter_(-1, where, peak)


def tiny(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers about the smallest normal one, 2^-10 to 2^24 times it; an eighth of them zeros. Signs as in `x`."""
    unit = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float64)
    size = torch.finfo(x.dtype).tiny * (unit * 34 - 10).exp2()
    size.mul_((unit * 64) % 1 > 0.125)
    return like(x, torch.copysign(size, x.double()))


def with_specials(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """inf, -inf and nan, each once, in rows of their own where there are enough rows."""
    made = copy_of(x)
    if x.numel() < 8:
        return made
    width = x.shape[-1] if x.numel() // x.shape[-1] >= 8 else 1
    rows = torch.randperm(x.numel() // width, generator=generator, device=x.device)[:3]
    columns = torch.randint(width, (3,), generator=generator, device=x.device)
    for value, place in zip(
        (float("inf"), float("-inf"), float("nan")), (rows * width + columns).tolist(), strict=True
    ):
        made[_index(x, place)] = value
    return made


def with_ties(x: torch.Tensor, spread: float) -> torch.Tensor:
    """Rounded to halves of the spread, so that most values come several times."""
    unit = spread / 2
    return like(x, (x.double() / unit).round() * unit)


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Each row sorted: all that is large lies together, at the end."""
    return like(x, x.sort(-1).values) if x.dim() else copy_of(x)


def uneven_rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row times a power of two of its own, from 2^-10 to 2^10."""
    if x.dim() < 2:
        return copy_of(x)
    powers = torch.randint(-10, 11, (*x.shape[:-1], 1), generator=generator, device=x.device).double()
    return like(x, x.double() * powers.exp2())


def with_huge(x: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    """One element, anywhere, at `value`."""
    made = copy_of(x)
    if x.numel():
        made[_index(x, int(torch.randint(x.numel(), (1,), generator=generator, device=x.device)))] = value
    return made


def redrawn(x: torch.Tensor, limits: Domain, generator: torch.Generator) -> torch.Tensor:
    """Other values from the same range: noise where the argument is fixed, flips of booleans, else another order."""
    if x.dtype == torch.bool:
        return like(x, x ^ (torch.rand(x.shape, generator=generator, device=x.device) < 0.5))
    if limits.kind is Kind.FIXED:
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=torch.float64)
        return like(x, x.double() + limits.spread * noise)
    order = torch.randperm(x.numel(), generator=generator, device=x.device)
    return like(x, x.reshape(-1)[order].view(x.shape))


def swap_inside(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Two elements exchanged, neither first nor last in any dimension: corners, sum and sum of squares stay.

    Of several pairs the first is taken whose sums in the tensor's own precision come out the same to the last bit. None
    where there is no such element, or where all are equal.
    """
    if not x.is_floating_point() or x.numel() < 8:
        return None
    small = x.numel() <= 2**22
    sums = _sums(x)
    best = None
    for _ in range(SWAPS if small else 4):
        a, b = (_inner(x, generator) for _ in range(2))
        if a is None or b is None:
            return None
        if bool(x[a] == x[b]):
            continue
        made = copy_of(x)
        made[a], made[b] = x[b], x[a]
        best = made
        if torch.equal(_sums(made), sums):
            return made
    return best


def _sums(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.sum(), (x * x).sum(), x.abs().sum(), torch.linalg.vector_norm(x)])


def _inner(x: torch.Tensor, generator: torch.Generator) -> tuple[int, ...] | None:
    """A random place that is on no face of the tensor; dimensions of fewer than three count as having no faces."""
    if x.dim() == 0:
        return None
    place = []
    for size in x.shape:
        low, high = (1, size - 1) if size >= 3 else (0, size)
        place.append(int(torch.randint(low, high, (1,), generator=generator, device=x.device)))
    corner = all(p in (0, size - 1) for p, size in zip(place, x.shape, strict=True))
    return None if corner else tuple(place)


def _index(x: torch.Tensor, place: int) -> tuple[int, ...]:
    """Indices of the element at `place` in row-major order."""
    found = []
    for size in reversed(x.shape):
        found.append(place % size)
        place //= size
    return tuple(reversed(found))
