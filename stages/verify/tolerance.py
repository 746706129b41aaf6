"""How far an output may be from the float64 oracle: a multiple of what the reference's own rounding costs.

Contract `strict`. Errors are measured in units of the output's root mean square, so that tiny outputs (a softmax over
400,000 columns) are judged as strictly as large ones. Two figures an output: the largest error and the root mean square
of the errors. Each may be `FACTOR` times eager's own, or a few units of the dtype's rounding, whichever is more.
"""

from __future__ import annotations

import math

import torch

from kernelwright.stages.types import Check

FACTOR = 8.0
"""Another order of summation may lose a few times what torch's blocked summation loses; a lower precision loses
hundreds of times more."""
FLOOR_EPS = 8.0
"""Units of the dtype's epsilon, at the output's largest value, that any implementation may err by."""
FALLBACK_EPS = 64.0
"""The floor where the oracle itself could only run in float32."""


def compare(
    name: str,
    output: torch.Tensor,
    exact: torch.Tensor,
    eager: torch.Tensor,
    precision: str,
    tolerance: float | None,
) -> list[Check]:
    """Checks of one output tensor against its oracle. Shapes and dtypes are equal already.

    Args:
        name: Prefix of the checks' names (`output 0, inputs 3`).
        output: The candidate's, any dtype.
        exact: The oracle's, float64 (or the same integer dtype).
        eager: The reference's in the task's precision.
        precision: The oracle's precision, `float64` or `float32`.
        tolerance: The task's own `TOLERANCE` (relative to the root mean square), if it states one.
    """
    if not output.is_floating_point():
        wrong = int(((output != exact) & (output != eager)).sum())
        return [Check(f"{name}: values equal", wrong == 0, wrong, 0, f"{wrong} of {output.numel()} differ")]
    finite = torch.isfinite(exact)
    checks = [_same_specials(name, output, exact, finite, eager)]
    if not checks[0].passed:
        return checks
    if not bool((finite & torch.isfinite(eager)).all()):
        # Selecting costs more than all the arithmetic, so it is done only where there is something to leave out.
        keep = finite & torch.isfinite(eager) & torch.isfinite(output)
        output, exact, eager = output[keep], exact[keep], eager[keep]
    scale = _rms(exact) or 1.0
    largest = _largest(exact) / scale
    worst, mean = _errors(output, exact, scale)
    worst_eager, mean_eager = _errors(eager, exact, scale)
    floor = (FLOOR_EPS if precision == "float64" else FALLBACK_EPS) * torch.finfo(eager.dtype).eps
    stated = tolerance or 0.0
    for label, figure, own, least in (
        ("largest error", worst, worst_eager, floor * max(largest, 1.0)),
        ("rms error", mean, mean_eager, floor),
    ):
        bound = max(FACTOR * own, least, stated)
        detail = f"eager's own {own:.3g}; oracle in {precision}; unit: rms of the output, {scale:.3g}"
        checks.append(Check(f"{name}: {label}", figure <= bound, figure, bound, detail))
    return checks


def _same_specials(
    name: str, output: torch.Tensor, exact: torch.Tensor, finite: torch.Tensor, eager: torch.Tensor
) -> Check:
    """Non-finite values must stand where the reference has them, with the same sign.

    Where only one of eager and oracle is finite (an overflow of the task's precision), either is accepted.
    """
    eager_finite = torch.isfinite(eager)
    both = finite & eager_finite
    neither = ~finite & ~eager_finite
    bad = both & ~torch.isfinite(output)
    special = exact.to(output.dtype)
    same = (output == special) | (output.isnan() & special.isnan())
    bad |= neither & ~same
    count = int(bad.sum())
    detail = f"{count} of {output.numel()} elements are nan or inf where the reference's are not, or the reverse"
    return Check(f"{name}: finite where the reference is", count == 0, count, 0, detail if count else "")


def _errors(value: torch.Tensor, exact: torch.Tensor, scale: float) -> tuple[float, float]:
    error = value.double().sub_(exact)
    return _largest(error) / scale, _rms(error) / scale


def _largest(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(value, ord=float("inf"))) if value.numel() else 0.0


def _rms(value: torch.Tensor) -> float:
    if value.numel() == 0:
        return 0.0
    return float(torch.linalg.vector_norm(value.double())) / math.sqrt(value.numel())
