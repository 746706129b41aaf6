"""Rewrites a graph so that more of it can be fused; what it computes stays the same.

* Operators with two results over a row, of which each may be had alone (`max.dim` gives values and indices), are
  written as one operator a result: a fused kernel shares the pass.
* A linear layer whose result goes to operators that fuse loses its bias to them: they add it for free.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.stages.generate.lowering import covers, trailing
from kernelwright.stages.translate.graph import Graph, Node, Ref, TensorSpec

_PAIRS = {
    "aten.max.dim": ("aten.amax.default", "aten.argmax.default"),
    "aten.min.dim": ("aten.amin.default", "aten.argmin.default"),
    "aten.aminmax.default": ("aten.amin.default", "aten.amax.default"),
    "aten.var_mean.dim": ("aten.var.dim", "aten.mean.dim"),
    "aten.var_mean.correction": ("aten.var.correction", "aten.mean.dim"),
    "aten.std_mean.dim": ("aten.std.dim", "aten.mean.dim"),
    "aten.std_mean.correction": ("aten.std.correction", "aten.mean.dim"),
}
"""For each operator with two results, the operators that give them."""


def prepare(graph: Graph) -> Graph:
    """The rewritten graph. Doing it twice changes nothing more."""
    return _split_bias(_split_pairs(graph))


def _split_pairs(graph: Graph) -> Graph:
    pairs = {n.name: n for n in graph.nodes if n.op in _PAIRS and _over_rows(graph, n)}
    nodes: list[Node] = []
    for node in graph.nodes:
        source = node.args[0] if node.op == "getitem" else None
        if isinstance(source, Ref) and source.name in pairs:
            nodes.append(_half(node, pairs[source.name]))
        elif node.name not in pairs:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _over_rows(graph: Graph, pair: Node) -> bool:
    source = pair.args[0]
    first = replace(pair, op=_PAIRS[pair.op][0])
    return isinstance(source, Ref) and trailing(first, len(graph.specs[source.name].shape)) > 0


def _half(item: Node, pair: Node) -> Node:
    """The operator that gives one of the pair's results."""
    index = item.args[1]
    assert isinstance(index, int)
    op, args, kwargs = _PAIRS[pair.op][index], pair.args, dict(pair.kwargs)
    if op == "aten.mean.dim":
        # Its second argument is the dimensions too, its third whether to keep them: the variance's fourth.
        args, keep = args[:2], args[3:4]
        kwargs = {k: v for k, v in kwargs.items() if k == "keepdim"} | dict(zip(("keepdim",), keep, strict=False))
    return replace(item, op=op, args=args, kwargs=tuple(kwargs.items()))


def _split_bias(graph: Graph) -> Graph:
    by_name = {n.name: n for n in graph.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        users = [by_name[name] for name in graph.users[node.name]]
        fusable = users and all(covers(user, graph.specs) for user in users)
        bias = node.args[2] if node.op == "aten.linear.default" and len(node.args) == 3 else None
        if isinstance(bias, Ref) and fusable and isinstance(node.output, TensorSpec):
            product = Node(f"{node.name}_product", node.op, node.args[:2], (), node.output)
            nodes += [product, Node(node.name, "aten.add.Tensor", (Ref(product.name), bias), (), node.output)]
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
