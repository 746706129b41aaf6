"""From the graph to fused kernels and library calls.

Greedy: each operator that can be lowered opens a group, and every later one that fits joins it. A group is one pass
over its inputs, so each join saves writing and reading an intermediate tensor. What fits:

* pointwise operators over the group's space (their operands broadcast to it);
* reductions and normalisations over its trailing dimensions, once for the group: its rows;
* pointwise operators on the rows' results (one value a row), and views of such results.

An operator may not join when it needs something that depends on the group through an operator outside it: the group
would have to run both before and after that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernelwright.stages.generate.body import Body, broadcast_strides
from kernelwright.stages.generate.ir import Domain, FusedKernel, LibraryCall, Plan, Store
from kernelwright.stages.generate.layouts import row_major, specs_for_kernels
from kernelwright.stages.generate.lowering import CONVERSIONS, POINTWISE, ROWWISE, base, covers, trailing
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.translate.graph import Graph, Node, Ref, TensorSpec

FEWEST_ROWS = 16
"""Reductions over fewer rows stay library calls: one row a thread or block would leave most of the device idle."""
SUPPORTED_DTYPES = ("bool", "int32", "int64", "float16", "bfloat16", "float32", "float64")
VIEWS = (
    "aten.view",
    "aten.reshape",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.flatten",
    "aten.expand",
    "aten.expand_as",
    "aten._unsafe_view",
)
"""Of a value with one element a row these change nothing in memory."""
NO_WORK = (*VIEWS, *(f"aten.{name}" for name in CONVERSIONS))
"""Operators that are no reason for a kernel: alone, the library's copy is as good or better."""
KERNEL_NAME_LENGTH = 40


def plan(graph: Graph) -> Plan:
    """Partition the graph. Every node is in exactly one step; steps are in an order in which they can run."""
    graph = prepare(graph)
    groups = _groups(graph)
    steps = _ordered(graph, groups)
    specs = specs_for_kernels(graph, {name for group in groups for name in group.names})
    names: set[str] = set()
    built: list[FusedKernel | LibraryCall] = []
    for step in steps:
        built.append(_build(graph, step, specs, names) if isinstance(step, _Group) else LibraryCall(step))
    return Plan(tuple(built))


@dataclass
class _Group:
    """Nodes that will be one kernel."""

    space: tuple[int, ...]
    reduced: int = 0
    nodes: list[Node] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    """Values with one element a row."""
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """How each value from outside is read over the space: in one way only."""

    @property
    def names(self) -> set[str]:
        return {n.name for n in self.nodes}


def _groups(graph: Graph) -> list[_Group]:
    placed: set[str] = set()
    groups: list[_Group] = []
    for position, node in enumerate(graph.nodes):
        if node.name in placed:
            continue
        group = _open(graph, node)
        if group is None:
            continue
        tainted: set[str] = set()
        for later in graph.nodes[position + 1 :]:
            reads = set(later.refs())
            if later.name not in placed and not reads & tainted and _join(graph, group, later):
                continue
            if reads & (tainted | group.names):
                tainted.add(later.name)
        _drop_loose_views(graph, group)
        if any(base(n.op) not in NO_WORK for n in group.nodes):
            groups.append(group)
            placed |= group.names
    return groups


def _open(graph: Graph, node: Node) -> _Group | None:
    if not isinstance(node.output, TensorSpec):
        return None
    source = node.args[0] if node.args else None
    if base(node.op) in POINTWISE:
        group = _Group(node.output.shape)
    elif base(node.op) in ROWWISE and isinstance(source, Ref) and source.name in graph.specs:
        group = _Group(graph.specs[source.name].shape)
    else:
        return None
    return group if math.prod(group.space) > 1 and _join(graph, group, node) else None


def _join(graph: Graph, group: _Group, node: Node) -> bool:
    """Add the node to the group when it fits."""
    output, name = node.output, base(node.op)
    if not isinstance(output, TensorSpec) or not _dtypes_supported(graph, node):
        return False
    if name in VIEWS:
        fits = _joins_as_view(graph, group, node, output)
    elif not covers(node, graph.specs):
        fits = False
    elif name in ROWWISE:
        fits = _joins_as_row(graph, group, node, output)
    else:
        fits = _joins_as_pointwise(graph, group, node, output)
    if fits:
        group.nodes.append(node)
    return fits


def _joins_as_view(graph: Graph, group: _Group, node: Node, output: TensorSpec) -> bool:
    source = node.args[0]
    if not (isinstance(source, Ref) and source.name in group.rows):
        return False
    # Only what has the row's dimensions, as ones, expands along them.
    over_rows = output.shape == group.space and graph.specs[source.name].shape != _row_dims(group)
    if not (over_rows or _is_row_shape(group, output.shape)):
        return False
    group.rows.add(node.name)
    return True


def _joins_as_row(graph: Graph, group: _Group, node: Node, output: TensorSpec) -> bool:
    source = node.args[0]
    if not isinstance(source, Ref) or graph.specs[source.name].shape != group.space or source.name in group.rows:
        return False
    before, group.reduced = group.reduced, trailing(node, len(group.space))
    rows, length = math.prod(_row_dims(group)), math.prod(group.space[len(_row_dims(group)) :])
    # Values that are there already and look like one value a row would be taken for rows' values.
    ambiguous = before == 0 and any(
        _is_row_shape(group, n.output.shape) for n in group.nodes if isinstance(n.output, TensorSpec)
    )
    fits = group.reduced > 0 and before in (0, group.reduced) and rows >= FEWEST_ROWS and length > 1 and not ambiguous
    if not (fits and _reads(graph, group, node, group.space, flat=False)):
        group.reduced = before
        return False
    if output.shape != group.space:
        group.rows.add(node.name)
    return True


def _joins_as_pointwise(graph: Graph, group: _Group, node: Node, output: TensorSpec) -> bool:
    if output.shape == group.space:
        return _reads(graph, group, node, group.space, flat=False)
    if group.reduced and _is_row_shape(group, output.shape):
        flat = len(output.shape) == len(group.space) - group.reduced
        inside = [r for r in node.refs() if r in group.names]
        if inside and set(inside) <= group.rows and _reads(graph, group, node, output.shape, flat):
            group.rows.add(node.name)
            return True
    return False


def _reads(graph: Graph, group: _Group, node: Node, target: tuple[int, ...], flat: bool) -> bool:
    """Whether all operands of an operator with this output shape can be had; what comes from outside is noted."""
    if not all(_broadcasts(graph, group, r, target, flat) for r in node.refs()):
        return False
    outside = {r for r in node.refs() if r not in group.names}
    found = {r: broadcast_strides(graph.specs[r], group.space, group.reduced, flat) for r in outside}
    if any(group.strides.get(r, strides) != strides for r, strides in found.items()):
        return False
    group.strides |= found
    return True


def _broadcasts(graph: Graph, group: _Group, name: str, target: tuple[int, ...], flat: bool) -> bool:
    """Whether a value can be an operand of an operator with this output shape in the group."""
    spec = graph.specs.get(name)
    if spec is None:
        return False
    if name in group.names:
        if name not in group.rows:
            return spec.shape == group.space
        # One value a row: aligned with the space only with its trailing ones, with other rows' values only without.
        has_ones = spec.shape == (*_row_dims(group), *([1] * group.reduced)) or spec.shape == group.space
        return (not has_ones and spec.shape == _row_dims(group)) if flat else has_ones
    if len(spec.shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(spec.shape), reversed(target), strict=False))


def _row_dims(group: _Group) -> tuple[int, ...]:
    return group.space[: len(group.space) - group.reduced]


def _is_row_shape(group: _Group, shape: tuple[int, ...]) -> bool:
    return shape in (_row_dims(group), (*_row_dims(group), *([1] * group.reduced))) and shape != group.space


def _dtypes_supported(graph: Graph, node: Node) -> bool:
    specs = [graph.specs[r] for r in node.refs() if r in graph.specs]
    if isinstance(node.output, TensorSpec):
        specs.append(node.output)
    return all(s.dtype in SUPPORTED_DTYPES for s in specs)


def _drop_loose_views(graph: Graph, group: _Group) -> None:
    """Views at the end of a group that nothing in it reads are cheaper outside: they cost nothing there."""
    while group.nodes and base(group.nodes[-1].op) in VIEWS:
        group.nodes.pop()


def _ordered(graph: Graph, groups: list[_Group]) -> list[_Group | Node]:
    """Steps in topological order, each as early as its inputs allow and in the graph's order otherwise."""
    owner: dict[str, _Group | Node] = {n.name: n for n in graph.nodes}
    for group in groups:
        owner |= dict.fromkeys(group.names, group)
    done = {i.name for i in graph.inputs}
    waiting: list[_Group | Node] = []
    for node in graph.nodes:
        step = owner[node.name]
        if not any(step is w for w in waiting):
            waiting.append(step)
    order: list[_Group | Node] = []
    while waiting:
        step = next(s for s in waiting if set(_needs(s)) <= done)
        waiting = [s for s in waiting if s is not step]
        order.append(step)
        done |= step.names if isinstance(step, _Group) else {step.name}
    return order


def _needs(step: _Group | Node) -> Iterable[str]:
    if isinstance(step, Node):
        return step.refs()
    return (r for n in step.nodes for r in n.refs() if r not in step.names)


def _build(graph: Graph, group: _Group, specs: Mapping[str, TensorSpec], taken: set[str]) -> FusedKernel:
    body = Body(group.space, group.reduced, specs)
    for node in group.nodes:
        assert isinstance(node.output, TensorSpec)
        body.dtype = node.output.dtype
        body.flat_rows = node.name in group.rows and len(node.output.shape) == len(group.space) - group.reduced
        if base(node.op) in VIEWS:
            source = node.args[0]
            assert isinstance(source, Ref)
            body.locals[node.name] = body.locals[source.name]
        else:
            rule = (ROWWISE if base(node.op) in ROWWISE else POINTWISE)[base(node.op)]
            # A reduction reads whole rows, whatever the shape of its result.
            body.flat_rows = body.flat_rows and rule not in ROWWISE.values()
            body.locals[node.name] = body.cast(rule(body, node), node.output.dtype)
    stores = tuple(_stores(graph, group, body))
    return FusedKernel(
        name=_kernel_name(group, taken),
        space=group.space,
        reduced=group.reduced,
        loads=tuple(body.loads.values()),
        body=tuple(body.lines),
        stores=stores,
        covers=tuple(n.name for n in group.nodes),
    )


def _stores(graph: Graph, group: _Group, body: Body) -> Iterable[Store]:
    returned = {v.name for v in graph.outputs if isinstance(v, Ref)} | {name for name, _ in graph.mutated}
    for node in group.nodes:
        if node.name in returned or any(u not in group.names for u in graph.users[node.name]):
            value, spec = body.locals[node.name], node.output
            assert isinstance(spec, TensorSpec)
            assert isinstance(value, str)
            domain = Domain.FULL if spec.shape == group.space else Domain.ROW
            yield Store(value, node.name, row_major(spec), domain)


def _kernel_name(group: _Group, taken: set[str]) -> str:
    ops = dict.fromkeys(base(n.op).removeprefix("aten.").strip("_") for n in group.nodes if base(n.op) not in VIEWS)
    wish = "_".join(ops)
    if len(wish) > KERNEL_NAME_LENGTH:
        first, *_, last = ops
        wish = f"{first}_to_{last}"
    wish = f"fused_{wish}"
    name, number = wish, 1
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    taken.add(name)
    return name
