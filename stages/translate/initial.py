"""How a written-out module makes its tensors anew: Python text whose values are like those of a given tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.stages.translate.functional import expression

if TYPE_CHECKING:
    import torch

_SPREAD_OF_CONSTANTS = 0.1
"""Values that are all equal (a norm's weights of one) become random by this part: equal ones would hide mistakes."""
_FEW = 8
"""A tensor of up to this many elements is written out."""


def exact(tensor: torch.Tensor) -> str | None:
    """An expression with exactly the tensor's values, when a short one exists: few, all equal, counting, a triangle."""
    import torch

    if tensor.is_complex():
        return None
    if tensor.numel() <= _FEW and tensor.numel() > 0:
        return f"torch.tensor({_shortest(tensor.tolist(), tensor.dtype)}{_dtype(tensor, _implied(tensor))})"
    if tensor.dim() == 1 and torch.equal(tensor, torch.arange(len(tensor), dtype=tensor.dtype, device=tensor.device)):
        return f"torch.arange({len(tensor)}{_dtype(tensor, torch.int64)})"
    full = _full(tensor, tensor.flatten()[:1])
    if full or tensor.dim() != 2:
        return full
    return _triangle(tensor, "triu", tensor[:1, -1]) or _triangle(tensor, "tril", tensor[-1:, 0])


def random_like(tensor: torch.Tensor, spread_constants: bool = False) -> str:
    """An expression that draws values like the tensor's: for floats a normal (or uniform, where none is negative).

    Mean and deviation are the tensor's; integers are drawn within its own bounds, booleans with its own frequency.
    Infinities and nans are left out of account. With `spread_constants`, floats that are all equal are spread too.
    """
    import torch

    shape = ", ".join(map(str, tensor.shape)) or "()"
    dtype = _dtype(tensor, torch.float32)
    if tensor.numel() == 0:
        return f"torch.empty({shape}{dtype})"
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) < {_rounded(tensor.double().mean().item())}"
    if tensor.is_complex():
        return f"torch.randn({shape}{dtype})"
    if not tensor.is_floating_point():
        low, high = int(tensor.min()), int(tensor.max())
        return f"torch.randint({low}, {high + 1}, {tuple(tensor.shape)}{_dtype(tensor, torch.int64)})"
    values = tensor.detach().double().flatten()
    values = values[values.isfinite()]
    if len(values) == 0:
        return f"torch.randn({shape}{dtype})"
    mean, deviation = values.mean().item(), values.std(correction=0).item()
    if spread_constants and deviation <= 1e-6 * abs(mean):
        deviation = _SPREAD_OF_CONSTANTS * (abs(mean) or 1.0)
    elif values.min() >= 0:
        return _scaled(f"torch.rand({shape}{dtype})", values.max().item(), 0.0)
    return _scaled(f"torch.randn({shape}{dtype})", deviation, 0.0 if abs(mean) < 0.2 * deviation else mean)


def _full(tensor: torch.Tensor, value: torch.Tensor) -> str | None:
    if not bool((tensor == value).all()):
        return None
    number = _shortest(value.item() if len(value) else 0, tensor.dtype)
    return f"torch.full({tuple(tensor.shape)}, {number}{_dtype(tensor, _implied(tensor))})"


def _triangle(tensor: torch.Tensor, function: str, corner: torch.Tensor) -> str | None:
    import torch

    full = corner.expand(tensor.shape)
    for diagonal in (-1, 0, 1):
        if torch.equal(tensor, getattr(torch, function)(full, diagonal)):
            return f"torch.{function}({_full(full, corner)}, {diagonal})"
    return None


def _scaled(draw: str, scale: float, offset: float) -> str:
    # A sample's deviation tells no more: what is within 10 % of the standard distribution is taken for it.
    scaled = draw if 0.9 <= scale <= 1.1 else f"{_rounded(scale)} * {draw}"
    return scaled if offset == 0 else f"{_rounded(offset)} + {scaled}"


def _dtype(tensor: torch.Tensor, implied: torch.dtype) -> str:
    return "" if tensor.dtype == implied else f", dtype={tensor.dtype}"


def _implied(tensor: torch.Tensor) -> torch.dtype:
    """The dtype that torch gives to a tensor made from such numbers."""
    import torch

    if tensor.dtype == torch.bool:
        return torch.bool
    return torch.float32 if tensor.is_floating_point() else torch.int64


def _rounded(value: float) -> str:
    return expression(float(f"{value:.2g}"), {})


def _shortest(value: object, dtype: torch.dtype) -> str:
    """The shortest decimal that is `value` in that dtype; lists item by item."""
    import torch

    if isinstance(value, list):
        return "[" + ", ".join(_shortest(v, dtype) for v in value) + "]"
    if isinstance(value, float):
        for digits in range(1, 18):
            short = float(f"{value:.{digits}g}")
            if torch.tensor(short, dtype=dtype).item() == value:
                return expression(short, {})
    assert isinstance(value, int | float)
    return expression(value, {})
