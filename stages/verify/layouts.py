"""The same values stored otherwise, and other sizes: what a kernel assumes about strides, alignment and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from kernelwright.kernelbench import contract as contracts
from kernelwright.kernelbench.contract import Contract
from kernelwright.kernelbench.errors import KernelwrightError
from kernelwright.kernelbench.sources import reshaped
from kernelwright.stages.verify import memory_needs
from kernelwright.stages.verify.cases import Case, draw, same_form

SMALL_BYTES = {"cpu": 2**22, "cuda": 2**28}
"""Arguments of another declared shape are tried up to this size."""


MOST_SHAPES = 3


def other_layouts(case: Case) -> Iterator[Case]:
    """The case with its tensors transposed in memory, and as slices of larger tensors that start one element in."""
    for layout, store, why in (
        ("non-contiguous", transposed, "strides that are ignored"),
        ("sliced", sliced, "rows taken for adjacent, or an address taken for aligned"),
    ):
        tensors = tuple(store(t) for t in case.tensors)
        if any(a.stride() != b.stride() for a, b in zip(tensors, case.tensors, strict=True)):
            yield replace(case, tensors=tensors, label=f"{layout} inputs", why=why, layout=layout)


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same values with the last two dimensions exchanged in memory; of one dimension, every second element."""
    if x.dim() >= 2:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if x.dim() == 1:
        return torch.stack([x, x], dim=1)[:, 0]
    return x


def sliced(x: torch.Tensor) -> torch.Tensor:
    """The same values within rows that are longer, from their second element on."""
    if x.dim() == 0 or x.numel() == 0:
        return x
    wider = torch.zeros((*x.shape[:-1], x.shape[-1] + 3), dtype=x.dtype, device=x.device)
    wider[..., 1 : 1 + x.shape[-1]] = x
    return wider[..., 1 : 1 + x.shape[-1]]


def other_shapes(contract: Contract, model: torch.nn.Module, base: Case, device: str, seed: int) -> Iterator[Case]:
    """Other declared shapes that this module accepts, the smallest first, each with a module's answer made for it."""
    found: list[tuple[int, str, Contract]] = []
    for label in contract.shapes:
        problem = reshaped(contract.problem, label) if label != contract.problem.shape else None
        if problem is None:
            continue
        other = contracts.load(problem)
        nbytes = memory_needs.input_bytes(other, device)
        if nbytes is not None and nbytes <= SMALL_BYTES[torch.device(device).type]:
            found.append((nbytes, label, other))
    for _, label, other in sorted(found, key=lambda f: f[:2])[:MOST_SHAPES]:
        case = _in_shape(other, model, base, device, seed)
        if case is not None:
            yield replace(case, label=f"shape {label}", why="a size that is taken for granted", layout=f"shape {label}")


def _in_shape(other: Contract, model: torch.nn.Module, base: Case, device: str, seed: int) -> Case | None:
    try:
        twin, _ = contracts.instantiate(other, device, seed)
        if {n: t.shape for n, t in twin.state_dict().items()} != {n: t.shape for n, t in base.state.items()}:
            return None
        case = replace(draw(other, device, seed, twin, jitter=False), state=base.state)
        if same_form(case, base):
            return None
        twin.load_state_dict(base.state)
        model.load_state_dict(base.state)
        with torch.no_grad():
            here, there = model(*case.arguments(case.tensors)), twin(*case.arguments(case.tensors))
    except (KernelwrightError, RuntimeError, ValueError, TypeError, IndexError):
        return None
    return case if _equal(here, there) else None


def _equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(torch.allclose(a.double(), b.double(), rtol=1e-4, equal_nan=True))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (isinstance(a, torch.Tensor | dict) or a == b)
