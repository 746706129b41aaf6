"""From any `nn.Module` to a problem: its captured graph written out as a source in KernelBench's contract."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.translate.functional import arguments, body, expression, statement, value_names
from kernelwright.stages.translate.graph import Arg, Graph, Input, InputKind
from kernelwright.stages.translate.initial import exact, random_like
from kernelwright.stages.translate.trace import has_attribute

if TYPE_CHECKING:
    import torch

_GROUP = '''class Group(nn.Module):
    """Holds tensors and further groups by name, also by names that are numbers (`self.layers[0]`)."""

    def __getitem__(self, name):
        return getattr(self, str(name))
'''


def problem_from_module(module: torch.nn.Module, example_inputs: Sequence[Any], name: str) -> Problem:
    """Write `module` out as a self-contained problem of the shapes that `example_inputs` has.

    Its `Model` computes the captured operators on the state that they use, which stands under the module's own dotted
    paths and is drawn at random (`copy_state` brings the module's values over). Its `get_inputs` draws tensors like
    the examples: same shape, dtype and order of strides, integers within the example's bounds. Raises UsageError as
    `capture` does, and for a module that returns a dict or nested tuples.
    """
    from kernelwright.stages.translate.capture import capture

    graph, _ = capture(module, example_inputs)
    origin = f"{type(module).__module__}.{type(module).__qualname__}"
    if graph.output_form == "other":
        raise UsageError(f"{origin}: forward returns a dict or nested values; return a tensor, a tuple or a list")
    state = [i for i in arguments(graph) if i.kind is not InputKind.ARGUMENT]
    numbered = any(not part.isidentifier() for i in state for part in i.target.split(".")[:-1])
    parts = [
        f'"""{type(module).__name__}, written out from its captured graph: the same operators on the same state."""\n',
        "import torch\nfrom torch import nn\n\naten = torch.ops.aten\n",
        *(["", _GROUP] if numbered else []),
        "",
        f"class Model({'Group' if numbered else 'nn.Module'}):",
        *_indented(1, _constructor(module, state, "Group" if numbered else "nn.Module")),
        *_indented(1, _forward(module, graph, state, len(example_inputs))),
        "",
        "def get_inputs():",
        *_indented(1, statement("return ", "[", [_drawn(value, origin) for value in example_inputs], "]")),
        "\n",
        "def get_init_inputs():",
        "    return []",
        "",
    ]
    return Problem(name=name, source="\n".join(parts), origin=origin)


def copy_state(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Copy into each parameter and buffer of `target` what `source` holds under the same dotted path.

    Unlike a state dict this takes in buffers that are not persistent and tensors that are plain attributes. Raises
    UsageError when `source` has no such tensor, or one of another shape.
    """
    import torch

    with torch.no_grad():
        for path, tensor in [*target.named_parameters(), *target.named_buffers()]:
            value = operator.attrgetter(path)(source) if has_attribute(source, path) else None
            if not isinstance(value, torch.Tensor) or value.shape != tensor.shape:
                raise UsageError(f"{type(source).__name__} has no tensor {path} of shape {tuple(tensor.shape)}")
            tensor.copy_(value)


def _constructor(module: torch.nn.Module, state: Sequence[Input], group: str) -> Iterator[str]:
    if not state:
        return
    yield "def __init__(self):"
    yield "    super().__init__()"
    made: set[str] = set()
    persistent = set(module.state_dict())
    for i in state:
        parents = i.target.split(".")[:-1]
        for depth in range(1, len(parents) + 1):
            path = ".".join(parents[:depth])
            if path not in made:
                made.add(path)
                yield "    " + _new_group(path, group)
        tensor = operator.attrgetter(i.target)(module)
        yield from _indented(1, _registration(i.target, tensor, i.target in persistent))
    yield ""


def _new_group(path: str, group: str) -> str:
    owner, _, name = path.rpartition(".")
    if name.isidentifier():
        return f"{_access(path)} = {group}()"
    return f'{_access(owner)}.add_module("{name}", {group}())'


def _registration(path: str, tensor: torch.Tensor, persistent: bool) -> list[str]:
    import torch

    owner, _, name = path.rpartition(".")
    if isinstance(tensor, torch.nn.Parameter):
        items = [random_like(tensor, spread_constants=True)]
        if not tensor.requires_grad:
            items.append("requires_grad=False")
        return statement(f"{_access(path)} = ", "nn.Parameter(", items, ")")
    # A state dict brings the values of ordinary buffers; masks, tables and what no state dict holds must be right here.
    ordinary = persistent and tensor.is_floating_point() and bool(tensor.isfinite().all())
    value = (None if ordinary else exact(tensor)) or random_like(tensor, spread_constants=ordinary)
    items = [f'"{name}"', value, *([] if persistent else ["persistent=False"])]
    return statement(_access(owner), ".register_buffer(", items, ")")


def _forward(module: torch.nn.Module, graph: Graph, state: Sequence[Input], count: int) -> Iterator[str]:
    parameters = [
        p.name
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    parameters = [*parameters, *(f"arg{i}" for i in range(len(parameters), count))][:count]
    given = {i.name: _access(i.target) for i in state}
    given |= {i.name: parameters[i.index] for i in graph.inputs if i.kind is InputKind.ARGUMENT}
    yield f"def forward({', '.join(['self', *parameters])}):"
    yield from _indented(1, body(graph, value_names(graph, given, taken=parameters)))
    yield ""


def _drawn(value: Any, origin: str) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return expression(_plain(value, origin), {})
    order = sorted(range(value.dim()), key=lambda d: value.stride()[d], reverse=True)
    if value.is_contiguous() or not value.permute(order).is_contiguous():
        return random_like(value)
    inverse = ", ".join(str(order.index(d)) for d in range(value.dim()))
    return f"({random_like(value.permute(order))}).permute({inverse})"


def _plain(value: Any, origin: str) -> Arg:
    if isinstance(value, list | tuple):
        return tuple(_plain(item, origin) for item in value)
    if value is None or isinstance(value, int | float | bool | str):
        return value
    raise UsageError(f"{origin}: an example input is a {type(value).__name__}; pass tensors, numbers, strings or None")


def _access(path: str) -> str:
    """`layers.0.weight` as an expression: `self.layers[0].weight`."""
    text = "self"
    for part in path.split(".") if path else []:
        text += f".{part}" if part.isidentifier() else f"[{part}]" if part.isdecimal() else f'["{part}"]'
    return text


def _indented(levels: int, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield "    " * levels + line if line else line
