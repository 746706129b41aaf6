"""Which values lie in memory otherwise than the graph says.

The graph's strides are those that eager gives: `x.T * 2` has the strides of `x.T`. A kernel's result is always
row-major instead, and so are views and other things that library calls make of it, once made contiguous.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kernelwright.stages.translate.graph import Graph, TensorSpec


def row_major_values(graph: Graph, fused: Collection[str]) -> set[str]:
    """Values that kernels must take to be row-major, although the graph has other strides for them or their origin.

    `fused` names the nodes that kernels compute.
    """
    found: set[str] = set()
    for node in graph.nodes:
        if node.name in fused:
            if isinstance(node.output, TensorSpec) and not node.output.contiguous:
                found.add(node.name)
        elif any(name in found for name in node.refs()):
            found.add(node.name)
    return found


def specs_for_kernels(graph: Graph, fused: Collection[str]) -> dict[str, TensorSpec]:
    """Spec of each value as a kernel finds it."""
    turned = row_major_values(graph, fused)
    return {name: row_major(spec) if name in turned else spec for name, spec in graph.specs.items()}


def row_major(spec: TensorSpec) -> TensorSpec:
    """The same tensor without gaps, the last dimension innermost."""
    strides, step = [], 1
    for size in reversed(spec.shape):
        strides.append(step)
        step *= size
    return replace(spec, stride=tuple(reversed(strides)))
