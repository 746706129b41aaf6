"""Leave out of a graph what computes nothing: dropout that drops nothing, views that change nothing, dead nodes.

The graph is functional (see `capture`), so that a value may be replaced by an equal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelwright.stages.translate.functional import overload
from kernelwright.stages.translate.graph import Arg, Graph, Node, Ref, TensorSpec

_DROPOUT = {f"aten.{kind}.default" for kind in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")}
_SAME_IF_SAME_SPEC = {
    "aten.alias.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.expand.default",
    "aten.flatten.using_ints",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten.permute.default",
    "aten.reshape.default",
    "aten.slice.Tensor",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.other",
    "aten.transpose.int",
    "aten.type_as.default",
    "aten._unsafe_view.default",
    "aten.view.default",
}
"""Operators whose result equals their first argument whenever shape, dtype and strides do.

For a view that starts where its base starts, equal shape and strides mean the very same elements; a slice as long as
its base starts there.
"""


def simplify(graph: Graph) -> Graph:
    """Return the graph without no-ops and without nodes that neither the outputs nor the mutations need."""
    specs = graph.specs
    returned = {value.name for value in graph.outputs if isinstance(value, Ref)}
    producers: dict[str, Node] = {}
    same: dict[str, str] = {}
    kept: list[Node] = []
    for original in graph.nodes:
        node = replace(original, args=_renamed(original.args, same), kwargs=_renamed_kwargs(original, same))
        node = _canonical(node, specs)
        producers[node.name] = node
        source = _handed_on(node, producers, specs)
        if source is None and node.name not in returned:
            source = _copied(node, producers, specs)
        if source is None:
            kept.append(node)
        else:
            same[node.name] = source
    outputs = _renamed(graph.outputs, same)
    mutated = tuple((same.get(value, value), path) for value, path in graph.mutated)
    return _without_dead(replace(graph, nodes=tuple(kept), outputs=outputs, mutated=mutated))


def _canonical(node: Node, specs: Mapping[str, TensorSpec]) -> Node:
    """Spell a few operators as their more usual equals, for the sake of whoever reads the graph."""
    if node.op == "aten._native_batch_norm_legit_no_training.default" and isinstance(node.output, tuple):
        # Rewriting in-place writes takes a batch norm apart, even one that only reads its statistics.
        *tensors, momentum, eps = node.args
        args = (*tensors, False, momentum, eps, True)
        return replace(node, op="aten.batch_norm.default", args=args, output=node.output[0])
    if node.op == "aten.numpy_T.default" and isinstance(node.args[0], Ref):
        reverse = tuple(reversed(range(len(specs[node.args[0].name].shape))))
        return replace(node, op="aten.permute.default", args=(node.args[0], reverse))
    if node.op == "aten.mT.default":
        return replace(node, op="aten.transpose.int", args=(node.args[0], -2, -1))
    return node


def _handed_on(node: Node, producers: Mapping[str, Node], specs: Mapping[str, TensorSpec]) -> str | None:
    """Name of the value that the node's result equals, or None."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Ref):
        return None
    if node.op in _DROPOUT:
        _, p, train = node.args
        return source.name if p == 0 or not train else None
    if node.op == "getitem" and source.name in producers:
        item = _component(producers[source.name], node.args[1])
        return item.name if isinstance(item, Ref) and specs.get(item.name, node.output) == node.output else None
    if node.op in _SAME_IF_SAME_SPEC and specs.get(source.name) == node.output:
        return source.name
    return None


def _copied(node: Node, producers: Mapping[str, Node], specs: Mapping[str, TensorSpec]) -> str | None:
    """Name of the value that the node copies, when nothing can change that value before the copy is read.

    Forward's inputs can: it may write to them, which the graph does last.
    """
    index = {"aten.clone.default": 0, "aten.copy.default": 1}.get(node.op)
    source = None if index is None else node.args[index]
    if not isinstance(source, Ref) or specs.get(source.name) != node.output:
        return None
    root = source.name
    while root in producers:
        producer = producers[root]
        if producer.op != "getitem" and all(a.alias_info is None for a in overload(producer.op)._schema.arguments):
            return source.name
        root = next(producer.refs())
    return None


def _component(producer: Node, index: Arg) -> Arg:
    """The argument that item `index` of a several-valued node may equal."""
    if producer.op == "aten.batch_norm.default":
        return Ref(producer.name)
    if producer.op == "aten.broadcast_tensors.default":
        tensors = producer.args[0]
        if isinstance(tensors, tuple) and isinstance(index, int):
            return tensors[index]
    if producer.op == "aten.native_dropout.default" and index == 0 and producer.args[1] == 0:
        return producer.args[0]
    return None


def _without_dead(graph: Graph) -> Graph:
    needed = {value.name for value in graph.outputs if isinstance(value, Ref)} | {name for name, _ in graph.mutated}
    live: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.refs())
            live.append(node)
    return replace(graph, nodes=tuple(reversed(live)))


def _renamed(args: tuple[Arg, ...], names: Mapping[str, str]) -> tuple[Arg, ...]:
    return tuple(_rename(arg, names) for arg in args)


def _renamed_kwargs(node: Node, names: Mapping[str, str]) -> tuple[tuple[str, Arg], ...]:
    return tuple((key, _rename(value, names)) for key, value in node.kwargs)


def _rename(arg: Arg, names: Mapping[str, str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(names.get(arg.name, arg.name))
    if isinstance(arg, tuple):
        return _renamed(arg, names)
    return arg
