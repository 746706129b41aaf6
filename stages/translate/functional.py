"""A graph as Python text over `torch.ops.aten`: a function of explicit tensors, and the parts to write other forms."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kernelwright.stages.translate.graph import Arg, Dtype, Graph, Input, InputKind, Node, Ref

if TYPE_CHECKING:
    import torch

_WIDTH = 92
"""100 columns, less the indentation of a method's body."""
_TAKEN = {"torch", "nn", "aten", "self", "forward"}


def functional(graph: Graph) -> str:
    """Write the forward as a function `forward(x, weight, ...)` of the tensors that `arguments` lists, in that order.

    It returns what the module returns (a flat tuple where that was nested or a dict) and writes back what the module
    writes back (`running_mean.copy_(...)`).
    """
    names = value_names(graph)
    parameters = ", ".join(names[i.name] for i in arguments(graph))
    lines = [f"def forward({parameters}):", *("    " + line for line in body(graph, names))]
    return "\n".join(["import torch", "", "aten = torch.ops.aten", "", "", *lines, ""])


def arguments(graph: Graph) -> tuple[Input, ...]:
    """The functional form's parameters: forward's tensors in their order, then the state that is read or written."""
    used = {name for node in graph.nodes for name in node.refs()}
    used |= {value.name for value in graph.outputs if isinstance(value, Ref)}
    used |= {name for name, _ in graph.mutated}
    written = {path for _, path in graph.mutated}
    forward = sorted((i for i in graph.inputs if i.kind is InputKind.ARGUMENT), key=lambda i: i.index)
    state = [i for i in graph.inputs if i.kind is not InputKind.ARGUMENT and (i.name in used or i.target in written)]
    return (*forward, *state)


def value_names(graph: Graph, given: Mapping[str, str] | None = None, taken: Iterable[str] = ()) -> dict[str, str]:
    """A Python expression for each value: state by its path (`norm_weight`), items of a tuple in place (`max_1[0]`).

    `given` has the expressions of inputs that the caller names itself, `taken` the identifiers to keep clear of.
    """
    used = {*_TAKEN, *taken}
    names = dict(given or {})
    for i in graph.inputs:
        if i.name not in names:
            names[i.name] = unused_name(i.target.replace(".", "_") if i.target else i.name, used)
    for node in graph.nodes:
        if node.op == "getitem":
            names[node.name] = f"{expression(node.args[0], names)}[{node.args[1]}]"
        else:
            names[node.name] = unused_name(node.name, used)
    return names


def unused_name(wish: str, taken: set[str]) -> str:
    """Return an identifier like `wish` that is not in `taken`, and add it there."""
    wish = wish.lstrip("_") or wish
    base = wish if wish.isidentifier() and not keyword.iskeyword(wish) else f"_{wish}"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def body(graph: Graph, names: Mapping[str, str]) -> list[str]:
    """The forward's statements, not indented, given an expression for each input's and node's name."""
    forward_first = arguments(graph)
    device = f"{names[forward_first[0].name]}.device" if forward_first else ""
    lines: list[str] = []
    for node in graph.nodes:
        if node.op != "getitem":
            lines.extend(statement(f"{names[node.name]} = ", *_call_parts(node, names, device)))
    owners = {i.target or i.name: names[i.name] for i in graph.inputs}
    lines.extend(f"{owners[path]}.copy_({names[value]})" for value, path in graph.mutated)
    values = [expression(value, names) for value in graph.outputs]
    match graph.output_form:
        case "single":
            lines.append(f"return {values[0]}")
        case "list":
            lines.extend(statement("return ", "[", values, "]"))
        case _:
            lines.extend(statement("return ", "(", values, ",)" if len(values) == 1 else ")"))
    return lines


def call(node: Node, names: Mapping[str, str], device: str = "") -> str:
    """One operator call on one line, for example `aten.softmax.int(x, -1)`.

    `device` is the expression for the device on which an operator that makes a tensor from nothing puts it.
    """
    opening, items, closing = _call_parts(node, names, device)
    return opening + ", ".join(items) + closing


def expression(arg: Arg, names: Mapping[str, str]) -> str:
    """An argument as Python text."""
    if isinstance(arg, Ref):
        return names[arg.name]
    if isinstance(arg, Dtype):
        return f"torch.{arg.name}"
    if isinstance(arg, tuple):
        return "[" + ", ".join(expression(item, names) for item in arg) + "]"
    if isinstance(arg, float) and not math.isfinite(arg):
        return f'float("{arg}")'
    if isinstance(arg, str):
        return arg if arg.startswith("torch.") else f'"{arg}"'
    return repr(arg)


def _call_parts(node: Node, names: Mapping[str, str], device: str) -> tuple[str, list[str], str]:
    items = [expression(arg, names) for arg in node.args]
    items += [f"{key}={expression(value, names)}" for key, value in node.kwargs]
    if device and _makes_from_nothing(node):
        items.append(f"device={device}")
    return f"{_spelled(node.op)}(", items, ")"


def _makes_from_nothing(node: Node) -> bool:
    if any(True for _ in node.refs()):
        return False
    return any(argument.name == "device" for argument in overload(node.op)._schema.arguments)


def _spelled(op: str) -> str:
    """`aten.gelu` for `aten.gelu.default` where torch would try that overload first anyway."""
    namespace, name, variant = op.split(".")
    packet = f"aten.{name}" if namespace == "aten" else f"torch.ops.{namespace}.{name}"
    first = overload(op).overloadpacket.overloads()[0]
    return packet if variant == "default" == first else f"{packet}.{variant}"


def overload(op: str) -> torch._ops.OpOverload:
    """Torch's operator of that full name."""
    import torch

    namespace, name, variant = op.split(".")
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), variant)
    return found


def statement(start: str, opening: str, items: Iterable[str], closing: str) -> list[str]:
    """`start` and a bracket of items: one line, or one line an item where it would be too long."""
    items = list(items)
    line = start + opening + ", ".join(items) + closing
    if len(line) <= _WIDTH:
        return [line]
    return [start + opening, *(f"    {item}," for item in items), closing.removeprefix(",")]
