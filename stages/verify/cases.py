"""What a candidate is tried on: sets of fresh random inputs, and parameters that are not the ones it was built with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.kernelbench.contract import Contract
from kernelwright.stages.sandbox import tree

JITTER = 0.1
"""Standard deviation of what is added to each float parameter, in units of the parameter's own (1 where it is
constant). A default affine of ones and zeros would hide a missing multiply."""


@dataclass(frozen=True)
class Case:
    """One call: the arguments (described by `structure`, tensors apart) and the module's state (by name)."""

    structure: Any
    tensors: tuple[torch.Tensor, ...]
    state: dict[str, torch.Tensor]
    label: str = "case"
    why: str = ""
    follows: int | None = None
    layout: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments' tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors)

    def arguments(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Forward's arguments, with these tensors in the places of the case's own."""
        arguments: list[Any] = tree.unflatten(self.structure, list(tensors))
        return arguments


def draw(problem: Contract, device: str, seed: int, model: torch.nn.Module, *, jitter: bool) -> Case:
    """Draw the arguments from `get_inputs` under `seed`; jitter the parameters about the model's own when asked."""
    arguments = contract.draw_inputs(problem, device, seed)
    tensors: list[torch.Tensor] = []
    structure = tree.flatten(list(arguments), tensors)
    state = {name: t.detach().clone() for name, t in model.state_dict().items()}
    if jitter:
        generator = torch.Generator(device=device).manual_seed(seed + 1)
        for name, _ in model.named_parameters():
            _jitter(state[name], generator)
    return Case(structure, tuple(t.detach() for t in tensors), state)


def _jitter(value: torch.Tensor, generator: torch.Generator) -> None:
    if not value.is_floating_point() or value.numel() == 0:
        return
    spread = value.float().std(correction=0).item()
    noise = torch.randn(value.shape, generator=generator, device=value.device)
    value.add_((noise * (JITTER * (spread or 1.0))).to(value.dtype))
