"""The complete candidate file: the reference as it is, the kernels, and a `ModelNew` whose forward runs the plan.

`ModelNew` inherits the reference's constructor, so that parameters have the same names, shapes and first values. It
computes with the kernels only what they were written for, and leaves the rest to the reference's own forward.
"""

from __future__ import annotations

import ast
import keyword
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate.ir import FusedKernel, LibraryCall, Plan
from kernelwright.stages.generate.layouts import row_major_values
from kernelwright.stages.translate.functional import call, expression, value_names
from kernelwright.stages.translate.graph import Graph, Input, InputKind, Ref, TensorSpec

T = TypeVar("T")

NOT_THE_MODEL = ("get_inputs", "get_init_inputs", "SHAPES", "TOLERANCE", "PRECISION")
"""What a problem's source defines beside its model."""
SAFE_LIBRARY_OPS = ("aten.linear.default",)
"""Library calls that work for any leading dimension: no argument of theirs is a size."""


@dataclass(frozen=True)
class Launch:
    """How forward calls one kernel: `function(inputs...)` returns the kernel's stores in order (one, or a tuple)."""

    function: str
    inputs: tuple[str, ...]
    """Graph values, in the order of the function's parameters."""


def forward_parameters(problem: Problem) -> list[str] | None:
    """Names of the parameters of the reference's forward, without self; None when its source does not show them."""
    forward = _forward(problem)
    if forward is None or forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs:
        return None
    return [a.arg for a in (*forward.args.posonlyargs, *forward.args.args)][1:]


def offers(problem: Problem, graph: Graph) -> bool:
    """Whether a module can be written: plain tensors as arguments, a flat result, nothing written back."""
    parameters = forward_parameters(problem)
    arguments = [i.index for i in graph.inputs if i.kind is InputKind.ARGUMENT]
    plain = parameters is not None and sorted(arguments) == list(range(len(parameters)))
    constants = any(i.kind is InputKind.CONSTANT for i in graph.inputs)
    return plain and not constants and not graph.mutated and graph.output_form in ("single", "tuple", "list")


def module_source(
    problem: Problem, graph: Graph, plan: Plan, launches: Mapping[str, Launch], kernels: str, summary: str
) -> str:
    """The file's text.

    Args:
        graph: The graph that `plan` was made from, as `prepare` rewrote it.
        launches: By the kernel's name.
        kernels: Module-level imports and definitions: the kernels and the functions that launch them.
        summary: What the module does, for its docstring.
    """
    names = _names(problem, graph, plan)
    lines = [*_guard(graph, plan, names), *_state(graph, plan, names), *_steps(graph, plan, launches, names)]
    signature = ast.unparse(_required(_forward(problem)).args)
    return "\n".join(
        [
            _reference(problem.source).rstrip(),
            "",
            "",
            kernels.strip(),
            "",
            "",
            "class ModelNew(Model):",
            textwrap.indent(_docstring(summary), "    "),
            "",
            f"    def forward({signature}):",
            textwrap.indent("\n".join(lines), "        "),
            "",
        ]
    )


@cache
def _reference(source: str) -> str:
    """The problem's source without its inputs: imports, constants and classes stay as they are written."""
    lines = source.splitlines()
    drop: set[int] = set()
    for node in ast.parse(source).body:
        if any(name in NOT_THE_MODEL for name in _defined(node)):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            drop |= set(range(first, _required(node.end_lineno) + 1))
    kept = [line for number, line in enumerate(lines, 1) if number not in drop]
    # What was taken out leaves runs of empty lines.
    text = "\n".join(kept)
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text if "import torch\n" in text + "\n" else f"import torch\n\n{text}"


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _forward(problem: Problem) -> ast.FunctionDef | None:
    return _forward_in(problem.source)


@cache
def _forward_in(source: str) -> ast.FunctionDef | None:
    """The forward that `Model` has: its own, or that of the class in the file that it names or inherits from."""
    classes: dict[str, ast.ClassDef] = {}
    other_names: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            other_names |= dict.fromkeys(_defined(node), node.value.id)
    name: str | None = "Model"
    for _ in range(len(classes) + len(other_names)):
        found = classes.get(other_names.get(name or "", name or ""))
        if found is None:
            return None
        forward = next((f for f in found.body if isinstance(f, ast.FunctionDef) and f.name == "forward"), None)
        if forward is not None:
            return forward
        name = next((base.id for base in found.bases if isinstance(base, ast.Name)), None)
    return None


def _required(value: T | None) -> T:
    assert value is not None
    return value


def _docstring(summary: str) -> str:
    text = f"{summary} The kernels have no backward: under autograd the reference's own forward runs."
    wrapped = textwrap.wrap(text, 108)
    if len(wrapped) == 1:
        return f'"""{wrapped[0]}"""'
    return "\n".join([f'"""{wrapped[0]}', *wrapped[1:], '"""'])


def _names(problem: Problem, graph: Graph, plan: Plan) -> dict[str, str]:
    """A Python expression for each value of the plan."""
    parameters = _required(forward_parameters(problem))
    given = {i.name: parameters[i.index] for i in graph.inputs if i.kind is InputKind.ARGUMENT}
    return value_names(graph, given, taken=parameters)


def _guard(graph: Graph, plan: Plan, names: Mapping[str, str]) -> Iterator[str]:
    """Send what the kernels were not written for to the reference."""
    arguments = [i for i in graph.inputs if i.kind is InputKind.ARGUMENT]
    free = leading_is_free(graph, plan)
    conditions = ["torch.is_grad_enabled()"]
    conditions += [f"not _fits({names[one.name]}, {_expected(one, free)})" for one in arguments]
    # A parameter may have been cast, moved or replaced since.
    read = {load.source for kernel in plan.kernels for load in kernel.loads}
    state = [i for i in graph.inputs if i.kind is not InputKind.ARGUMENT and i.name in read]
    conditions += [f"not _fits({_attribute(one)}, {_expected(one, free=False)})" for one in state]
    if free and len(arguments) > 1:
        conditions.append(f"not ({' == '.join(f'{names[i.name]}.shape[0]' for i in arguments)})")
    call_reference = f"return super().forward({', '.join(names[i.name] for i in sorted(arguments, key=_index))})"
    if len(conditions) <= 2 and sum(map(len, conditions)) < 90:
        yield f"if {' or '.join(conditions)}:"
    else:
        yield "if ("
        yield from (f"    {'or ' if n else ''}{c}" for n, c in enumerate(conditions))
        yield "):"
    yield f"    {call_reference}"


def _index(given: Input) -> int:
    return given.index


def _expected(given: Input, free: bool) -> str:
    spec = given.spec
    shape = ["None", *map(str, spec.shape[1:])] if free and spec.shape else [str(n) for n in spec.shape]
    text = f"({', '.join(shape)}{',' if len(shape) == 1 else ''}), torch.{spec.dtype}"
    return text if spec.contiguous else f"{text}, {spec.stride}"


def fits(more: str = "") -> str:
    """The guard's helper, which each back end puts among its kernels; `more` continues its last condition."""
    return FITS.replace("tensor.dtype == dtype", f"tensor.dtype == dtype{more}")


FITS = '''
def _fits(tensor, shape, dtype, stride=None):
    """Whether a tensor is laid out as the kernels expect; None in the shape stands for any size."""
    sizes = len(shape) == tensor.dim() and all(want in (None, have) for want, have in zip(shape, tensor.shape))
    laid_out = tensor.is_contiguous() if stride is None else tensor.stride() == stride
    return sizes and laid_out and tensor.dtype == dtype
'''


def leading_is_free(graph: Graph, plan: Plan) -> bool:
    """Whether the module works for any size of the arguments' first dimension.

    True when every argument leads with the same size, every step's iteration space does, the size stands nowhere else
    in a kernel, and no library call has a size among its arguments.
    """
    sizes = {i.spec.shape[0] for i in graph.inputs if i.kind is InputKind.ARGUMENT and i.spec.shape}
    scalars = any(not i.spec.shape for i in graph.inputs if i.kind is InputKind.ARGUMENT)
    if len(sizes) != 1 or scalars:
        return False
    (lead,) = sizes
    for step in plan.steps:
        if isinstance(step, LibraryCall):
            if step.node.op not in SAFE_LIBRARY_OPS:
                return False
        elif not _kernel_is_free(graph, step, lead):
            return False
    return all(isinstance(v, Ref) for v in graph.outputs)


def _kernel_is_free(graph: Graph, kernel: FusedKernel, lead: int) -> bool:
    rank = len(kernel.space)
    if kernel.reduced == rank or kernel.space[0] != lead:
        return False
    state = {i.name for i in graph.inputs if i.kind is not InputKind.ARGUMENT}
    for load in kernel.loads:
        # What comes from the arguments has the free size, and nothing else has.
        leads = load.strides[0] != 0 and len(graph.specs[load.source].shape) == rank
        if (load.source in state and load.strides[0] != 0) or (load.source not in state and not leads):
            return False
    # The size is read from a tensor that spans the whole space, or at least its first dimension.
    return leading_source(graph, kernel) is not None


def leading_source(graph: Graph, kernel: FusedKernel) -> str | None:
    """A graph value that the kernel loads and whose first dimension is the space's first dimension."""
    for load in kernel.loads:
        shape = graph.specs[load.source].shape if load.source in graph.specs else ()
        if len(shape) == len(kernel.space) and shape[0] == kernel.space[0] and load.strides[0] != 0:
            return load.source
    return None


def _state(graph: Graph, plan: Plan, names: Mapping[str, str]) -> Iterator[str]:
    """Give each parameter that is used a short name."""
    used: set[str] = {v.name for v in graph.outputs if isinstance(v, Ref)}
    for step in plan.steps:
        used |= set(step.node.refs()) if isinstance(step, LibraryCall) else {load.source for load in step.loads}
    for one in graph.inputs:
        if one.kind is not InputKind.ARGUMENT and one.name in used:
            yield f"{names[one.name]} = {_attribute(one)}"


def _attribute(given: Input) -> str:
    """The parameter or buffer of this path; in a path such as `layers.0.weight` not every part is a Python name."""
    if all(part.isidentifier() and not keyword.iskeyword(part) for part in given.target.split(".")):
        return f"self.{given.target}"
    getter = "get_parameter" if given.kind is InputKind.PARAMETER else "get_buffer"
    return f"self.{getter}({given.target!r})"


def _steps(graph: Graph, plan: Plan, launches: Mapping[str, Launch], names: Mapping[str, str]) -> Iterator[str]:
    device = next((f"{names[i.name]}.device" for i in graph.inputs), "")
    unsettled = _unsettled(graph, plan)
    items = {step.node.name for step in plan.steps if isinstance(step, LibraryCall) and step.node.op == "getitem"}
    needs_aten = False
    body: list[str] = []
    for step in plan.steps:
        if isinstance(step, FusedKernel):
            launch = launches[step.name]
            targets = ", ".join(names[s.target] for s in step.stores)
            inputs = [f"{names[i]}.contiguous()" if i in unsettled & items else names[i] for i in launch.inputs]
            body.append(f"{targets} = {launch.function}({', '.join(inputs)})")
        elif step.node.name not in items:
            needs_aten = True
            settled = ".contiguous()" if step.node.name in unsettled else ""
            body.append(f"{names[step.node.name]} = {call(step.node, names, device)}{settled}")
    if needs_aten:
        yield "aten = torch.ops.aten"
    yield from body
    values = [expression(v, names) for v in graph.outputs]
    if graph.output_form == "single":
        yield f"return {values[0]}"
    elif graph.output_form == "list":
        yield f"return [{', '.join(values)}]"
    else:
        yield f"return ({', '.join(values)}{',' if len(values) == 1 else ''})"


def _unsettled(graph: Graph, plan: Plan) -> set[str]:
    """Library results that kernels read as row-major, and that need not be: their layout is the library's to choose."""
    fused = {name for kernel in plan.kernels for name in kernel.covers}
    read = {load.source for kernel in plan.kernels for load in kernel.loads}
    made = {node.name: node.output for node in graph.nodes if node.name in read - fused}
    turned = row_major_values(graph, fused)
    return {n for n, spec in made.items() if n in turned or (isinstance(spec, TensorSpec) and spec.contiguous)}
