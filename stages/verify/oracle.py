"""The right answer: the reference in float64, and beside it the reference as it is, whose own error sets the bound."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.stages.sandbox import tree
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.tolerance import Yardstick, yardstick


@dataclass(frozen=True)
class Expected:
    """Outputs of one case. `exact[i]` is float64 (or the integers themselves), `eager[i]` the task's own precision."""

    structure: Any
    exact: tuple[torch.Tensor, ...]
    eager: tuple[torch.Tensor, ...]
    bounds: tuple[Yardstick | None, ...]
    """How far each output may be from `exact`."""
    inputs_after: tuple[torch.Tensor, ...]
    """The arguments' tensors after the reference's call: equal to the ones before, unless it works in place."""

    in_place: bool = False
    state_after: dict[str, tuple[torch.Tensor, torch.Tensor, Yardstick | None]] = field(default_factory=dict)

    @property
    def changes_state(self) -> bool:
        """Whether the reference changes its buffers."""
        return bool(self.state_after)

    @property
    def nbytes(self) -> int:
        """Bytes that holding this takes."""
        return sum(t.numel() * t.element_size() for t in (*self.exact, *self.eager, *self.inputs_after))


def expect(model: torch.nn.Module, case: Case, tolerance: float | None) -> Expected:
    """Run the reference on a case in its own precision and in float64, and derive the bounds.

    The model's state is left as the case gives it. `tolerance` is the task's own, if it states one.
    """
    inputs = [t.clone() for t in case.tensors]
    structure, eager = _call(model, case, inputs)
    after = tuple(t if not torch.equal(t, before) else before for t, before in zip(inputs, case.tensors, strict=True))
    try:
        exact = _call(copy.deepcopy(model).double(), case, [_upcast(t) for t in case.tensors])[1]
        precision = "float64"
    except (RuntimeError, TypeError):
        # A reference that names its own dtype (torch.zeros(..., dtype=torch.float32) @ x) cannot be upcast.
        exact, precision = eager, "float32"
    exact = [_upcast(t) for t in exact]
    bounds = tuple(yardstick(e, own, precision, tolerance) for e, own in zip(exact, eager, strict=True))
    return Expected(structure, tuple(exact), tuple(eager), bounds, after)


def _call(model: torch.nn.Module, case: Case, inputs: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
    model.load_state_dict(case.state)
    outputs: list[torch.Tensor] = []
    with torch.no_grad():
        structure = tree.flatten(model(*case.arguments(inputs)), outputs)
    model.load_state_dict(case.state)
    return structure, [t.detach() for t in outputs]


def _upcast(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value.clone()
