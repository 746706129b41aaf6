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
    """Cases under the same parameters share one dictionary, so that they need be loaded once."""
    label: str = "case"
    why: str = ""
    """What a failure here means, for a person or a model: "a reduction that skips elements"."""
    follows: int | None = None
    """Index of the case in whose buffers, and right after which, this one is to be run."""
    layout: str = ""
    """"" as `get_inputs` gives them. Cases of one name have tensors of the same shapes, strides and dtypes."""
    stressed: bool = False
    """The values may be ill-conditioned: the bound allows what rounding the inputs to a few units would do."""
    specials: bool = False
    """There is a nan or inf among the values: where the reference's answer is nan, any answer is accepted."""

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
        for names in tied(model, parameters_only=True):
            _jitter(state[names[0]], generator)
            for other in names[1:]:
                state[other].copy_(state[names[0]])
    return Case(structure, tuple(t.detach() for t in tensors), state)


def tied(model: torch.nn.Module, *, parameters_only: bool = False) -> list[list[str]]:
    """Names of the state, those that share one tensor together: only together may they change."""
    groups: dict[int, list[str]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, torch.nn.Parameter) or not parameters_only:
            groups.setdefault(id(value), []).append(name)
    return list(groups.values())


def _jitter(value: torch.Tensor, generator: torch.Generator) -> None:
    if not value.is_floating_point() or value.numel() == 0:
        return
    spread = value.float().std(correction=0).item()
    noise = torch.randn(value.shape, generator=generator, device=value.device)
    value.add_((noise * (JITTER * (spread or 1.0))).to(value.dtype))


def copy_of(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy with the same shape and strides, in another dtype if given; dense where elements overlap."""
    dtype = dtype or tensor.dtype
    if any(step == 0 and n > 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
        return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=tensor.device)
    return made.copy_(tensor)


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype are equal, a nan equal to a nan."""
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


def same_form(a: Case, b: Case) -> bool:
    """Whether both fit the same buffers: the same nesting, plain values, shapes, strides and dtypes."""
    return a.structure == b.structure and [(t.shape, t.stride(), t.dtype) for t in a.tensors] == [
        (t.shape, t.stride(), t.dtype) for t in b.tensors
    ]
