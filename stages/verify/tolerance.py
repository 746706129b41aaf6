"""How far an output may be from the float64 oracle: a multiple of what the reference's own rounding costs.

Errors are measured in units of the output's root mean square, so that tiny outputs (a softmax over 400,000 columns) are
judged as strictly as large ones. Three figures an output: the root mean square of the errors, the largest error, and
the root mean square within the worst row, in units of that row's own, so that one huge row does not hide the others.
Each may be `FACTOR` times eager's own, or a few units of the dtype's rounding, whichever is more.

By the contract:

- `strict`: as said.
- `tf32`: beside it, `TF32_FACTOR` times the error that TF32 operands of matrix products cause.
- `task`: beside it, the task's `TOLERANCE`, or else `TASK_EPS` units of its dtype's epsilon. No other size enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.types import Check
from kernelwright.stages.verify.indices import IndexRule, compare_indices

FACTOR = 8.0
"""Another order of summation may lose a few times what torch's blocked summation loses; a lower precision loses
hundreds of times more."""
FLOOR_EPS = 8.0
"""Units of the dtype's epsilon, at the output's largest value, that any implementation may err by."""
HALF_FLOOR_EPS = 1.0
"""The same for 16-bit outputs: a result that was computed in float32 is rounded once, by half a unit."""
SUM_EPS = 0.35
"""Times the square root of R: what a plain running sum of R terms of one sign loses, in epsilons, twice over. Torch
sums by halves and loses next to nothing, but a running sum in the same precision is no less honest."""
FALLBACK_EPS = 64.0
"""The floor where the oracle itself could only run in the task's own precision; of 16 bits a sixteenth of it."""
TF32_FACTOR = 2.0
"""Over operands cut off at ten bits, which err twice as much as rounded ones. bfloat16 errs eight times as much."""
TASK_EPS = {torch.float32: 64.0, torch.float64: 64.0}
HALF_TASK_EPS = 8.0
"""For other dtypes, which are 16 bits or fewer."""
ROW = 32
"""Elements that a row must have to be judged by itself: the error of fewer varies too much."""
QUIET_ROW = 1e-6
"""The least unit of a row, in units of the whole output's."""
CHUNK = {"cpu": 2**17, "cuda": 2**25}
"""Elements that are compared at a time: on the CPU a chunk in float64 stays in the cache, and nowhere does a
comparison need a second copy of a large output."""


@dataclass(frozen=True)
class Figures:
    """Errors of one output against its oracle, in the unit of the values (`rms`, `largest`), and of rows in theirs."""

    rms: float
    largest: float
    row: float

    @property
    def finite(self) -> bool:
        """Whether no nan or inf came in."""
        return math.isfinite(self.rms) and math.isfinite(self.largest) and math.isfinite(self.row)


@dataclass(frozen=True)
class Yardstick:
    """What one output of one case is measured by. Found once, used for every candidate."""

    all_finite: bool
    """Whether oracle and eager have no nan or inf anywhere."""
    scale: float
    """Root mean square of the oracle's finite values: the unit of all errors."""
    largest_bound: float
    rms_bound: float
    row_bound: float
    detail: str
    units: torch.Tensor | None = None
    """Each row's unit (float64), or None where the output has no rows to judge apart."""
    lenient: bool = False
    """Inputs hold nan or inf: where the reference has nan anything goes, where it has inf anything not finite."""
    own: float = 0.0
    """Eager's own rms error, in units of `scale`."""


Bounds = Yardstick | IndexRule | None


@dataclass(frozen=True)
class Allowance:
    """Another answer (float64), and how many times its distance from the oracle's is allowed."""

    answer: torch.Tensor
    factor: float


def yardstick(
    exact: torch.Tensor,
    eager: torch.Tensor,
    precision: str,
    tolerance: float | None,
    contract: Precision = Precision.STRICT,
    *,
    terms: int = 1,
    allowances: tuple[Allowance, ...] = (),
    lenient: bool = False,
) -> Yardstick | None:
    """The bounds for a float output; None for integers and booleans, which must be equal.

    Args:
        exact: The oracle's output, float64.
        eager: The reference's output in the task's own precision.
        precision: The oracle's precision, `float64` or `float32`.
        tolerance: The task's own `TOLERANCE` (relative to the root mean square), if it states one.
        contract: What may be lost beside the reference's own error.
        terms: Inputs that one output may be a sum of.
        allowances: Answers to inputs or operands that were rounded.
        lenient: Whether inputs hold nan or inf.
    """
    exact, eager = _real(exact), _real(eager)
    if not eager.is_floating_point():
        return None
    finite = torch.isfinite(exact) & torch.isfinite(eager)
    all_finite = bool(finite.all())
    kept_exact, kept_eager = (exact, eager) if all_finite else (exact[finite], eager[finite])
    rms, peak = _norms(kept_exact)
    scale = rms or 1.0
    units = _row_units(exact, scale) if all_finite else None
    own = _scaled(_errors(kept_eager, kept_exact, units), scale)
    floor = _floor(eager.dtype, precision, terms)
    stated = _stated(tolerance, contract, eager.dtype)
    # Errors below the smallest normal number are not seen: hardware may flush those to zero.
    flushed = torch.finfo(eager.dtype).tiny / scale
    bounds = Yardstick(
        all_finite=all_finite,
        scale=scale,
        largest_bound=max(FACTOR * own.largest, floor * max(peak / scale, 1.0), stated, flushed),
        rms_bound=max(FACTOR * own.rms, floor, stated, flushed),
        row_bound=max(FACTOR * own.row, floor, stated, flushed / QUIET_ROW),
        detail=f"eager's own {own.largest:.3g} (rms {own.rms:.3g}); oracle in {precision}; unit: the output's rms, "
        f"{scale:.3g}",
        units=units,
        lenient=lenient,
        own=own.rms,
    )
    for other in allowances:
        bounds = _allow(bounds, other, exact, finite)
    return bounds


def compare(name: str, output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, bounds: Bounds) -> list[Check]:
    """Checks of one output tensor against its oracle. Shape and dtype are known to be right.

    `name` starts the checks' names (`case 3, output 0`).
    """
    if bounds is None:
        wrong = int(((output != exact) & (output != eager)).sum())
        return [Check(f"{name}: values equal", wrong == 0, wrong, 0, f"{wrong} of {output.numel()} differ")]
    if isinstance(bounds, IndexRule):
        return compare_indices(name, output, bounds)
    output, exact, eager = _real(output), _real(exact), _real(eager)
    found = _scaled(_errors(output, exact, bounds.units), bounds.scale)
    if not (bounds.all_finite and found.finite):
        specials, keep = _same_specials(name, output, exact, eager, bounds.lenient)
        if not specials.passed:
            return [specials]
        found = _scaled(_errors(output[keep], exact[keep], None), bounds.scale)
    checks = [
        Check(
            f"{name}: largest error",
            found.largest <= bounds.largest_bound,
            found.largest,
            bounds.largest_bound,
            bounds.detail,
        ),
        Check(f"{name}: rms error", found.rms <= bounds.rms_bound, found.rms, bounds.rms_bound, bounds.detail),
    ]
    if bounds.units is not None:
        detail = f"of {bounds.units.numel()} rows, each in units of its own rms"
        checks.append(
            Check(
                f"{name}: rms error of the worst row",
                found.row <= bounds.row_bound,
                found.row,
                bounds.row_bound,
                detail,
            )
        )
    return checks


def _floor(dtype: torch.dtype, precision: str, terms: int) -> float:
    eps = torch.finfo(dtype).eps
    if precision != "float64":
        return FALLBACK_EPS * eps if dtype.itemsize >= 4 else FALLBACK_EPS / 16 * eps
    if dtype.itemsize < 4:
        return HALF_FLOOR_EPS * eps
    return (FLOOR_EPS + SUM_EPS * math.sqrt(max(terms, 1))) * eps


def _stated(tolerance: float | None, contract: Precision, dtype: torch.dtype) -> float:
    if contract is Precision.TASK and tolerance is None:
        return TASK_EPS.get(dtype, HALF_TASK_EPS) * torch.finfo(dtype).eps
    return tolerance or 0.0


def _allow(bounds: Yardstick, allowance: Allowance, exact: torch.Tensor, finite: torch.Tensor) -> Yardstick:
    other, factor = _real(allowance.answer), allowance.factor
    if bounds.all_finite:
        moved = _errors(other, exact, bounds.units)
    else:
        keep = finite & other.isfinite()
        moved = _errors(other[keep], exact[keep], None)
    moved = _scaled(moved, bounds.scale)
    if not moved.finite:
        return bounds
    return replace(
        bounds,
        largest_bound=max(bounds.largest_bound, factor * moved.largest),
        rms_bound=max(bounds.rms_bound, factor * moved.rms),
        row_bound=max(bounds.row_bound, factor * moved.row),
    )


def _same_specials(
    name: str, output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, lenient: bool
) -> tuple[Check, torch.Tensor]:
    """Non-finite values must stand where the reference has them, with the same sign; beside it, what is all finite.

    Where only one of eager and oracle is finite (an overflow of the task's precision), either is accepted. `lenient`:
    the maximum that GPUs have drops a nan, and splitting an infinity into high and low parts makes one.
    """
    finite, eager_finite, output_finite = exact.isfinite(), eager.isfinite(), output.isfinite()
    special = exact.to(output.dtype)
    if lenient:
        same = special.isnan() | eager.isnan() | ~output_finite
    else:
        same = (output == special) | (output.isnan() & special.isnan())
    bad = (finite & eager_finite & ~output_finite) | (~finite & ~eager_finite & ~same)
    count = int(bad.sum())
    detail = f"{count} of {output.numel()} elements are nan or inf where the reference's are not, or the reverse"
    check = Check(f"{name}: finite where the reference is", count == 0, count, 0, detail if count else "")
    return check, finite & eager_finite & output_finite


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def row_length(shape: torch.Size) -> int:
    """How many trailing elements make a row: the fewest last dimensions that hold `ROW`; 0 where there are no rows."""
    length = 1
    for size in reversed(shape):
        length *= size
        if length >= ROW:
            return length if length < shape.numel() else 0
    return 0


def _row_units(exact: torch.Tensor, scale: float) -> torch.Tensor | None:
    length = row_length(exact.shape)
    if not length:
        return None
    rows = exact.reshape(-1, length)
    units: torch.Tensor = torch.linalg.vector_norm(rows, dim=1).div_(math.sqrt(length))
    return units.clamp_(min=QUIET_ROW * scale)


def _errors(value: torch.Tensor, exact: torch.Tensor, units: torch.Tensor | None) -> Figures:
    """Errors of `value` in float64, a chunk at a time; rows in `units`. One transfer from the device in all."""
    if value.numel() == 0:
        return Figures(0.0, 0.0, 0.0)
    length = value.numel() // units.numel() if units is not None else 1
    step = max(CHUNK[value.device.type] // length, 1) * length
    squares, peaks, worst = [], [], []
    flat, right = value.reshape(-1), exact.reshape(-1)
    for start in range(0, flat.numel(), step):
        difference = flat[start : start + step].double().sub_(right[start : start + step])
        # Both pass a nan on.
        peaks.append(torch.linalg.vector_norm(difference, math.inf))
        if units is None:
            squares.append(difference.dot(difference))
            continue
        rows = torch.linalg.vector_norm(difference.view(-1, length), dim=1)
        squares.append(rows.dot(rows))
        first = start // length
        worst.append((rows / units[first : first + rows.numel()]).max())
    figures = [torch.stack(squares).sum(), torch.stack(peaks).max()]
    figures.append(torch.stack(worst).max() if worst else torch.zeros_like(figures[0]))
    total, largest, row = torch.stack(figures).tolist()
    return Figures(math.sqrt(total / value.numel()), largest, row / math.sqrt(length))


def _scaled(figures: Figures, scale: float) -> Figures:
    return Figures(figures.rms / scale, figures.largest / scale, figures.row)


def _norms(value: torch.Tensor) -> tuple[float, float]:
    """(root mean square, largest magnitude)."""
    if value.numel() == 0:
        return 0.0, 0.0
    flat = value.double().reshape(-1)
    total, peak = torch.stack([flat.dot(flat), torch.linalg.vector_norm(flat, math.inf)]).tolist()
    return math.sqrt(total / flat.numel()), peak
