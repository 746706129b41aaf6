"""The graph that the generator reads: aten operators in order, with shapes, free of torch objects.

It is what `torch.export` gives before any decomposition (`aten.rms_norm`, `aten.linear`, `aten.softmax` stay whole),
written as frozen dataclasses, so that it can be hashed, stored and drawn without importing torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


@dataclass(frozen=True)
class TensorSpec:
    """Shape, dtype (`float32`, without the `torch.` prefix) and strides in elements, of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for size in self.shape:
            n *= size
        return n

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True)
class Ref:
    """A use of the value with this name."""

    name: str


@dataclass(frozen=True)
class Dtype:
    """A dtype as an argument (`float32`)."""

    name: str


Arg = Ref | Dtype | int | float | bool | str | None | tuple["Arg", ...]


class InputKind(StrEnum):
    """Where a graph input comes from."""

    ARGUMENT = "argument"
    """The `index`-th positional argument of `forward`, counting tensors and other values alike."""
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    """A tensor that the module holds without registering it; `target` is its attribute path."""


@dataclass(frozen=True)
class Input:
    """A tensor that enters the graph."""

    name: str
    kind: InputKind
    spec: TensorSpec
    target: str = ""
    """For a parameter, buffer or constant: its dotted path in the module (`norm.weight`)."""
    index: int = -1
    """For an argument: its position in `forward`'s arguments."""


@dataclass(frozen=True)
class Node:
    """One operator call. `op` is the overload's full name (`aten.add.Tensor`); `getitem` picks one of several."""

    name: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    output: TensorSpec | tuple[TensorSpec | None, ...] | None
    """None when the output is no tensor (a size, an assertion)."""

    def refs(self) -> Iterator[str]:
        """Names of the values that the node reads, in order, with repeats."""
        yield from _refs(self.args)
        yield from _refs(tuple(v for _, v in self.kwargs))


def _refs(arg: Arg) -> Iterator[str]:
    if isinstance(arg, Ref):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from _refs(item)


@dataclass(frozen=True)
class Graph:
    """A module's forward as a straight line of operator calls."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Arg, ...]
    """What forward returns, flattened: a `Ref`, or a constant (None, a number)."""
    output_form: str
    """`single` (forward returns the one output itself), `tuple`, `list`, or `other` (nested or a dict)."""
    mutated: tuple[tuple[str, str], ...] = ()
    """(value name, buffer's or argument's path) pairs that forward writes back: running statistics, in-place inputs."""

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Spec of every value that is a single tensor, by name."""
        found = {i.name: i.spec for i in self.inputs}
        for node in self.nodes:
            if isinstance(node.output, TensorSpec):
                found[node.name] = node.output
        return found

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """Names of the nodes that read each value, in order; the graph's own outputs are not users."""
        names = [i.name for i in self.inputs] + [n.name for n in self.nodes]
        found: dict[str, list[str]] = {name: [] for name in names}
        for node in self.nodes:
            for name in dict.fromkeys(node.refs()):
                found[name].append(node.name)
        return {name: tuple(users) for name, users in found.items()}


@dataclass(frozen=True)
class OpInfo:
    """What translation finds out about a problem."""

    graph: Graph
    signature: str
    """What is computed, canonical, with the class of its shapes: equal for problems that the same kernel serves."""
    functional: str
    """The forward as a Python function of explicit tensors (inputs, parameters, buffers), as text that runs."""
    flops: int
    """Floating-point operations of one call; a multiply-add counts as two. Only operators that torch counts (matrix
    products, convolutions, attention) contribute."""
    bytes_least: int
    """Bytes that any implementation moves: each input that is read, once; each output written, once."""
    captured_by: str
    """`export` or `fx`."""
