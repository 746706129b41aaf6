"""Trace a module with torch: straight with `torch.export`, or by way of `make_fx`; both give a functional `Traced`."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.translate.convert import DEPENDS_ON_VALUES, Source, Traced, Unsupported
from kernelwright.stages.translate.graph import InputKind

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def by_export(model: torch.nn.Module, inputs: Sequence[Any], positions: Sequence[int]) -> Traced:
    """Trace with torch.export. `positions` comes from `argument_positions`."""
    import torch

    program = _functional(torch.export.export(model, tuple(inputs), strict=False))
    arguments = iter(positions)
    sources, literals = {}, {}
    for spec in program.graph_signature.input_specs:
        name, target = spec.arg.name, spec.target or ""
        if spec.kind.name == "USER_INPUT":
            index = next(arguments)
            if isinstance(inputs[index], torch.Tensor):
                sources[name] = Source(InputKind.ARGUMENT, index=index)
        elif spec.kind.name == "CONSTANT_TENSOR" and not has_attribute(model, target):
            literals[name] = program.constants[target]
        elif spec.kind.name == "CONSTANT_TENSOR":
            sources[name] = Source(InputKind.CONSTANT, target=target)
        else:
            sources[name] = Source(InputKind(spec.kind.name.lower()), target=target)
    returned, mutated = _results(program)
    return Traced(program.graph, sources, literals, returned, mutated, _form(program.call_spec.out_spec))


def by_fx(model: torch.nn.Module, inputs: Sequence[Any], positions: Sequence[int]) -> Traced:
    """Trace with make_fx, then export the straight line that it gives: it has lost what export stumbled over.

    Values are fake in both steps, so that a branch on data fails here too instead of being frozen one way.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    form: list[Any] = []

    def forward(*values: Any) -> list[Any]:
        arguments = list(inputs)
        for i, value in zip(tensors, values[len(state) :], strict=True):
            arguments[i] = value
        result = torch.func.functional_call(model, dict(zip(state, values, strict=False)), tuple(arguments))
        flat, spec = pytree.tree_flatten(result)
        form.append(spec)
        return flat

    flat_inputs = (*state.values(), *(inputs[i] for i in tensors))
    already_fake = any(isinstance(value, FakeTensor) for value in flat_inputs)
    tracer = make_fx(
        forward,
        tracing_mode="real" if already_fake else "fake",
        pre_dispatch=True,
        _allow_non_fake_inputs=True,
    )
    module = tracer(*flat_inputs)
    program = _functional(torch.export.export(module, flat_inputs, strict=False))

    paths = list(state)
    sources, literals, origin = {}, {}, {}
    user_inputs = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    for position, spec in enumerate(user_inputs):
        if position < len(paths):
            path = paths[position]
            kind = InputKind.PARAMETER if isinstance(state[path], torch.nn.Parameter) else InputKind.BUFFER
            sources[spec.arg.name], origin[spec.arg.name] = Source(kind, target=path), path
        else:
            sources[spec.arg.name] = Source(InputKind.ARGUMENT, index=tensors[position - len(paths)])
    unregistered = _unregistered(model)
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            value = getattr(module, spec.target or "")
            if id(value) in unregistered:
                sources[spec.arg.name] = Source(InputKind.CONSTANT, target=unregistered[id(value)])
            else:
                literals[spec.arg.name] = value
    returned, mutated = _results(program)
    mutated = [(value, origin.get(path, path)) for value, path in mutated]
    return Traced(program.graph, sources, literals, returned, mutated, _form(form[-1]))


def run_on_fakes(model: torch.nn.Module, inputs: Sequence[Any]) -> None:
    """Call the model for its side effects on Python objects; no tensor is computed, and none of its own changes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    already_fake = any(isinstance(value, FakeTensor) for value in (*inputs, *model.parameters(), *model.buffers()))
    with torch.no_grad(), nullcontext() if already_fake else FakeTensorMode(allow_non_fake_inputs=True):
        model(*inputs)


def _functional(program: ExportedProgram) -> ExportedProgram:
    """Rewrite the program without in-place writes and wrapped regions, if it has any."""
    import torch

    if any(_needs_rewriting(node) for node in program.graph.nodes):
        program = program.run_decompositions({})
    for node in program.graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            raise Unsupported(DEPENDS_ON_VALUES)
        if node.op == "get_attr" or (node.op == "call_function" and not _plain(node)):
            raise Unsupported(f"uses {node.target}, which is no plain operator")
    return program


def _needs_rewriting(node: torch.fx.Node) -> bool:
    import torch

    if node.op != "call_function":
        return node.op == "get_attr"
    if node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    if str(node.target) in ("aten.batch_norm.default", "aten.instance_norm.default"):
        # Their schemas do not say that they write the running statistics when they use those of the batch.
        return node.args[3] is not None and bool(node.args[5])
    return bool(node.target._schema.is_mutable)


def _plain(node: torch.fx.Node) -> bool:
    import torch

    return node.target is operator.getitem or isinstance(node.target, torch._ops.OpOverload)


def _results(program: ExportedProgram) -> tuple[list[Any], list[tuple[torch.fx.Node, str]]]:
    """Split the graph's outputs into what forward returns and what it writes back."""
    import torch

    values = program.graph.output_node().args[0]
    returned: list[Any] = []
    mutated: list[tuple[torch.fx.Node, str]] = []
    for spec, value in zip(program.graph_signature.output_specs, values, strict=True):
        if spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
            mutated.append((value, spec.target or ""))
        elif isinstance(value, torch.fx.Node) and not isinstance(value.meta.get("val"), torch.Tensor):
            raise Unsupported(DEPENDS_ON_VALUES)
        else:
            returned.append(value)
    return returned, mutated


def _form(spec: Any) -> str:
    from torch.utils import _pytree as pytree

    skeleton = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    if isinstance(skeleton, int):
        return "single"
    if type(skeleton) in (tuple, list) and all(isinstance(item, int) for item in skeleton):
        return type(skeleton).__name__
    return "other"


def argument_positions(model: torch.nn.Module, inputs: Sequence[Any]) -> list[int]:
    """For each leaf of the flattened inputs, the position of the argument that it belongs to."""
    import torch
    from torch.utils import _pytree as pytree

    positions: list[int] = []
    for index, value in enumerate(inputs):
        leaves = pytree.tree_leaves(value)
        if not isinstance(value, torch.Tensor) and any(isinstance(leaf, torch.Tensor) for leaf in leaves):
            place = inspect.getsourcefile(type(model).forward) or "the module"
            raise UsageError(f"{place}: argument {index} is a {type(value).__name__} of tensors; pass each by itself")
        positions.extend([index] * len(leaves))
    return positions


def has_attribute(model: torch.nn.Module, path: str) -> bool:
    """Whether the dotted path leads to something."""
    try:
        operator.attrgetter(path)(model)
    except AttributeError:
        return False
    return True


def _unregistered(model: torch.nn.Module) -> Mapping[int, str]:
    """Paths of the tensors that modules hold as plain attributes, by identity."""
    import torch

    return {
        id(value): f"{prefix}.{name}".removeprefix(".")
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    }
