"""The generator's own intermediate form: a plan of fused kernels and library calls, free of any back end.

`plan.py` makes it from the graph; the emitters (`cpp_*.py`, `triton_*.py`) only read it. All composite operators
(softmax, layer_norm, gelu, ...) are already lowered to scalar functions and row reductions, so that an emitter knows
about forty scalar functions and a handful of reductions, and nothing of aten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelwright.stages.translate.graph import Node, TensorSpec


class Domain(StrEnum):
    """Where a value of a fused kernel lives."""

    FULL = "full"
    """One value per point of the iteration space."""
    ROW = "row"
    """One value per row: constant over the reduced (trailing) dimensions."""


Operand = str | int | float | bool
"""A local value's name, or a literal."""


@dataclass(frozen=True)
class Load:
    """Read a tensor at each point: the element offset is the dot product of `strides` with the point's coordinates."""

    name: str
    source: str
    """Name of the graph value."""
    dtype: str
    strides: tuple[int, ...]
    """One per dimension of the kernel's space; 0 where the tensor is broadcast."""
    domain: Domain


@dataclass(frozen=True)
class Op:
    """One scalar function of `scalar.FUNCTIONS` applied at each point (or once a row)."""

    name: str
    fn: str
    args: tuple[Operand, ...]
    dtype: str
    domain: Domain


@dataclass(frozen=True)
class Reduce:
    """A reduction over the trailing `reduced` dimensions: sum, prod, max, min, argmax, argmin, any or all.

    The result's domain is ROW. The index of argmax and argmin counts positions within the row, first one on ties; a nan
    wins, as in torch.
    """

    name: str
    fn: str
    arg: str
    dtype: str


@dataclass(frozen=True)
class Store:
    """Write a local value to a new contiguous tensor that becomes the graph value `target`."""

    value: str
    target: str
    spec: TensorSpec
    domain: Domain


@dataclass(frozen=True)
class FusedKernel:
    """Passes over an iteration space. `reduced == 0` is a plain pointwise kernel."""

    name: str
    space: tuple[int, ...]
    reduced: int
    """How many trailing dimensions of `space` form a row."""
    loads: tuple[Load, ...]
    body: tuple[Op | Reduce, ...]
    """In order: each line reads loads and earlier lines only."""
    stores: tuple[Store, ...]
    covers: tuple[str, ...]
    """Names of the graph nodes that the kernel computes."""


@dataclass(frozen=True)
class LibraryCall:
    """A node that stays a torch call."""

    node: Node


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they run. Values pass between them by graph name."""

    steps: tuple[FusedKernel | LibraryCall, ...]

    @property
    def kernels(self) -> tuple[FusedKernel, ...]:
        """The fused kernels among the steps."""
        return tuple(s for s in self.steps if isinstance(s, FusedKernel))

    @property
    def library_ops(self) -> tuple[str, ...]:
        """The operators that stay torch calls, without repeats (views and other free operators left out)."""
        return tuple(dict.fromkeys(s.node.op for s in self.steps if isinstance(s, LibraryCall)))
