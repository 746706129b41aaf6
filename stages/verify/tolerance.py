"""How far an output may be from the float64 oracle: a multiple of what the reference's own rounding costs.

Contract `strict`. Errors are measured in units of the output's root mean square, so that tiny outputs (a softmax over
400,000 columns) are judged as strictly as large ones. Two figures an output: the largest error and the root mean square
of the errors. Each may be `FACTOR` times eager's own, or a few units of the dtype's rounding, whichever is more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernelwright.stages.types import Check

FACTOR = 8.0
"""Another order of summation may lose a few times what torch's blocked summation loses; a lower precision loses
hundreds of times more."""
FLOOR_EPS = 8.0
"""Units of the dtype's epsilon, at the output's largest value, that any implementation may err by."""
FALLBACK_EPS = 64.0
"""The floor where the oracle itself could only run in float32."""
CHUNK = {"cpu": 2**18, "cuda": 2**26}
"""Elements that are compared at a time: on the CPU a chunk in float64 stays in the cache, and nowhere does a
comparison need a second copy of a large output."""


@dataclass(frozen=True)
class Yardstick:
    """What one output of one case is measured by. Found once, used for every candidate."""

    all_finite: bool
    """Whether oracle and eager have no nan or inf anywhere."""
    scale: float
    """Root mean square of the oracle's finite values: the unit of all errors."""
    largest_bound: float
    rms_bound: float
    detail: str


def yardstick(exact: torch.Tensor, eager: torch.Tensor, precision: str, tolerance: float | None) -> Yardstick | None:
    """The bounds for a float output; None for integers and booleans, which must be equal.

    Args:
        exact: The oracle's output, float64.
        eager: The reference's output in the task's own precision.
        precision: The oracle's precision, `float64` or `float32`.
        tolerance: The task's own `TOLERANCE` (relative to the root mean square), if it states one.
    """
    if not eager.is_floating_point():
        return None
    finite = torch.isfinite(exact) & torch.isfinite(eager)
    all_finite = bool(finite.all())
    kept_exact, kept_eager = (exact, eager) if all_finite else (exact[finite], eager[finite])
    rms, peak = _norms(kept_exact)
    scale = rms or 1.0
    own_rms, own_largest = (figure / scale for figure in _errors(kept_eager, kept_exact))
    floor = (FLOOR_EPS if precision == "float64" else FALLBACK_EPS) * torch.finfo(eager.dtype).eps
    stated = tolerance or 0.0
    return Yardstick(
        all_finite=all_finite,
        scale=scale,
        largest_bound=max(FACTOR * own_largest, floor * max(peak / scale, 1.0), stated),
        rms_bound=max(FACTOR * own_rms, floor, stated),
        detail=f"eager's own {own_largest:.3g} (rms {own_rms:.3g}); oracle in {precision}; unit: the output's rms, "
        f"{scale:.3g}",
    )


def compare(
    name: str, output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, bounds: Yardstick | None
) -> list[Check]:
    """Checks of one output tensor against its oracle. Shape and dtype are known to be right.

    `name` starts the checks' names (`case 3, output 0`).
    """
    if bounds is None:
        wrong = int(((output != exact) & (output != eager)).sum())
        return [Check(f"{name}: values equal", wrong == 0, wrong, 0, f"{wrong} of {output.numel()} differ")]
    rms, largest = (figure / bounds.scale for figure in _errors(output, exact))
    if not (bounds.all_finite and math.isfinite(largest)):
        specials, keep = _same_specials(name, output, exact, eager)
        if not specials.passed:
            return [specials]
        rms, largest = (figure / bounds.scale for figure in _errors(output[keep], exact[keep]))
    return [
        Check(f"{name}: largest error", largest <= bounds.largest_bound, largest, bounds.largest_bound, bounds.detail),
        Check(f"{name}: rms error", rms <= bounds.rms_bound, rms, bounds.rms_bound, bounds.detail),
    ]


def _same_specials(
    name: str, output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor
) -> tuple[Check, torch.Tensor]:
    """Non-finite values must stand where the reference has them, with the same sign; beside it, what is all finite.

    Where only one of eager and oracle is finite (an overflow of the task's precision), either is accepted.
    """
    finite, eager_finite, output_finite = exact.isfinite(), eager.isfinite(), output.isfinite()
    special = exact.to(output.dtype)
    same = (output == special) | (output.isnan() & special.isnan())
    bad = (finite & eager_finite & ~output_finite) | (~finite & ~eager_finite & ~same)
    count = int(bad.sum())
    detail = f"{count} of {output.numel()} elements are nan or inf where the reference's are not, or the reverse"
    check = Check(f"{name}: finite where the reference is", count == 0, count, 0, detail if count else "")
    return check, finite & eager_finite & output_finite


def _errors(value: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """(root mean square, largest) of the difference, in float64, a chunk at a time."""
    total, largest = 0.0, 0.0
    step = CHUNK[value.device.type]
    for a, b in zip(value.reshape(-1).split(step), exact.reshape(-1).split(step), strict=True):
        rms, peak = _norms(a.double().sub_(b))
        total += rms * rms * a.numel()
        # max() would drop a nan, depending on the order.
        largest = peak if math.isnan(peak) or peak > largest else largest
        if math.isnan(largest):
            break
    return (math.sqrt(total / value.numel()) if value.numel() else 0.0), largest


def _norms(value: torch.Tensor) -> tuple[float, float]:
    """(root mean square, largest magnitude)."""
    if value.numel() == 0:
        return 0.0, 0.0
    flat = value.double().reshape(-1)
    return math.sqrt(float(flat @ flat) / flat.numel()), float(flat.abs().max())
