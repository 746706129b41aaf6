"""From a `torch.fx` graph of aten calls to our `Graph`, in which nothing of torch remains.

Devices, layouts and pinning are dropped (a candidate decides where it runs); memory formats become strings
(`torch.channels_last`); symbolic sizes are refused, since every shape is fixed by the example inputs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.translate.graph import Arg, Dtype, Graph, Input, InputKind, Node, Ref, TensorSpec

if TYPE_CHECKING:
    import torch

_PLACEMENT = ("device", "layout", "pin_memory", "non_blocking")
_LARGEST_LITERAL = 64
"""A tensor that forward builds from Python numbers is written into the graph element by element up to this size."""


DEPENDS_ON_VALUES = "depends on the values of a tensor: a branch, a plain number, or the shape of another tensor"


class Unsupported(UsageError):
    """The module computes something that the graph cannot express; the message completes '<module> ...'."""


@dataclass(frozen=True)
class Source:
    """Where a placeholder of the traced graph comes from."""

    kind: InputKind
    target: str = ""
    index: int = -1


@dataclass(frozen=True)
class Traced:
    """A functional trace of a module, however it was obtained."""

    graph: torch.fx.Graph
    sources: Mapping[str, Source]
    """By placeholder. One that is missing here is a literal, or an argument that is no tensor."""
    literals: Mapping[str, torch.Tensor]
    """Tensors that forward builds from Python numbers, by placeholder."""
    outputs: Sequence[Any]
    """What forward returns, flattened: a `torch.fx.Node` or a constant."""
    mutated: Sequence[tuple[torch.fx.Node, str]]
    output_form: str


def to_graph(traced: Traced) -> Graph:
    """Convert. Raises `Unsupported` for operators, sizes or arguments that `Graph` cannot hold."""
    inputs: list[Input] = []
    nodes: list[Node] = []
    for node in traced.graph.nodes:
        if node.op == "placeholder" and node.name in traced.sources:
            source = traced.sources[node.name]
            spec = tensor_spec(node.meta["val"])
            inputs.append(Input(node.name, source.kind, spec, source.target, source.index))
        elif node.op == "placeholder" and node.name in traced.literals:
            nodes.extend(_literal(node.name, traced.literals[node.name]))
        elif node.op == "call_function":
            nodes.append(_call(node))
    return Graph(
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=tuple(_arg(value) for value in traced.outputs),
        output_form=traced.output_form,
        mutated=tuple((value.name, path) for value, path in traced.mutated),
    )


def tensor_spec(value: torch.Tensor) -> TensorSpec:
    """Describe a (fake) tensor. Raises `Unsupported` when its size depends on data, or when it is not strided."""
    import torch

    if value.layout != torch.strided:
        raise Unsupported(f"uses a {_bare(value.layout)} tensor; only strided tensors are supported")
    sizes = (*value.shape, *value.stride())
    if not all(isinstance(size, int) for size in sizes):
        raise Unsupported(DEPENDS_ON_VALUES)
    return TensorSpec(tuple(value.shape), _bare(value.dtype), tuple(value.stride()))


def _call(node: torch.fx.Node) -> Node:
    if node.target is operator.getitem:
        return Node(node.name, "getitem", tuple(_arg(a) for a in node.args), (), _output(node.meta["val"]))
    op, args = str(node.target), tuple(_arg(a) for a in node.args)
    kwargs = {name: _arg(value) for name, value in node.kwargs.items() if name not in _PLACEMENT}
    if op == "aten.to.device":
        # `x.to(device, dtype)` without its device is a change of dtype.
        return Node(node.name, "aten.to.dtype", (args[0], *args[2:]), tuple(kwargs.items()), _output(node.meta["val"]))
    args, kwargs = _without_defaults(node.target, args, kwargs)
    return Node(node.name, op, args, tuple(sorted(kwargs.items())), _output(node.meta.get("val")))


def _without_defaults(
    target: Any, args: tuple[Arg, ...], kwargs: dict[str, Arg]
) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
    """Leave out the arguments that say what the operator assumes anyway, so that equal calls look equal."""
    declared = target._schema.arguments
    defaults = {a.name: _arg(a.default_value) for a in declared if a.has_default_value()}
    # Export switches cuDNN off while it traces; that is no wish of the module.
    args = tuple(True if a.name.startswith("cudnn_enable") else arg for a, arg in zip(declared, args, strict=False))
    while args and declared[len(args) - 1].name in defaults and args[-1] == defaults[declared[len(args) - 1].name]:
        args = args[:-1]
    return args, {name: value for name, value in kwargs.items() if name not in defaults or value != defaults[name]}


def _output(value: Any) -> TensorSpec | tuple[TensorSpec | None, ...] | None:
    import torch

    if isinstance(value, torch.Tensor):
        return tensor_spec(value)
    if isinstance(value, list | tuple):
        return tuple(tensor_spec(v) if isinstance(v, torch.Tensor) else None for v in value)
    return None


def _arg(value: Any) -> Arg:
    import torch

    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, torch.dtype):
        return Dtype(_bare(value))
    if isinstance(value, torch.device | torch.memory_format):
        return str(value)
    if isinstance(value, list | tuple):
        return tuple(_arg(v) for v in value)
    if value is None or isinstance(value, int | float | bool | str):
        return value
    raise Unsupported(f"passes a {type(value).__name__} to an operator, which the graph cannot hold")


def _literal(name: str, value: torch.Tensor) -> list[Node]:
    """Nodes that build a small constant from its numbers; the last one is called `name`."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    if isinstance(value, FakeTensor):
        raise Unsupported("uses a tensor that no trace can follow, such as `x.data`")
    if value.numel() > _LARGEST_LITERAL or value.is_complex():
        raise Unsupported(f"builds a tensor of {value.numel()} elements from Python numbers; register it as a buffer")
    with unset_fake_temporarily():
        numbers = value.flatten().tolist()
        spec = tensor_spec(value.contiguous())
    dtype = ("dtype", Dtype(spec.dtype))
    if not spec.shape:
        return [Node(name, "aten.scalar_tensor.default", (numbers[0],), (dtype,), spec)]
    if not numbers:
        return [Node(name, "aten.zeros.default", (spec.shape,), (dtype,), spec)]
    scalar = TensorSpec((), spec.dtype, ())
    nodes = [
        Node(f"{name}_{i}", "aten.scalar_tensor.default", (number,), (dtype,), scalar)
        for i, number in enumerate(numbers)
    ]
    items = tuple(Ref(node.name) for node in nodes)
    flat = TensorSpec((spec.numel,), spec.dtype, (1,))
    nodes.append(Node(f"{name}_flat", "aten.stack.default", (items,), (), flat))
    nodes.append(Node(name, "aten.view.default", (Ref(f"{name}_flat"), spec.shape), (), spec))
    return nodes


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")
