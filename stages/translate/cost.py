"""What a graph costs at least: floating-point operations, and bytes between the chip and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.stages.translate.functional import arguments, functional
from kernelwright.stages.translate.graph import Graph, Input, Ref, TensorSpec

if TYPE_CHECKING:
    import torch

_READS_PART = {
    "aten.embedding.default",
    "aten.gather.default",
    "aten.index.Tensor",
    "aten.index_select.default",
    "aten.select.int",
    "aten.slice.Tensor",
}
"""Operators that read no more of their source than they give out, and where the source is no more than the result."""


def flops(graph: Graph) -> int:
    """Count the floating-point operations of one call with torch's FlopCounterMode, on fake tensors.

    A multiply-add is two. Matrix products, convolutions and attention count (a causal mask saves nothing); pointwise
    operators and reductions do not.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    namespace: dict[str, object] = {}
    exec(functional(graph), namespace)
    forward = namespace["forward"]
    assert callable(forward)
    # Attention is counted as its two matrix products: the CPU's fused kernel is not in torch's table of counts.
    with FakeTensorMode(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        forward(*(_empty(i.spec) for i in arguments(graph)))
    return int(counter.get_total_flops())


def bytes_least(graph: Graph) -> int:
    """Bytes that any implementation moves: each input that is read, once; each output and each write-back, once.

    Elements that a stride of 0 repeats are stored, and counted, once. Of an input that is only ever looked up (an
    embedding's table) no more counts than the look-ups give out.
    """
    specs = graph.specs
    inputs = {i.name for i in graph.inputs}
    read = sum(_bytes_read(graph, i) for i in graph.inputs if graph.users[i.name])
    outputs = [value.name for value in graph.outputs if isinstance(value, Ref)]
    written = {*outputs, *(value for value, _ in graph.mutated)} - inputs
    return read + sum(stored_bytes(specs[name]) for name in written)


def stored_bytes(spec: TensorSpec) -> int:
    """Bytes of the tensor's distinct elements."""
    import torch

    distinct = 1
    for size, stride in zip(spec.shape, spec.stride, strict=True):
        distinct *= size if stride != 0 or size == 0 else 1
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return distinct * dtype.itemsize


def _bytes_read(graph: Graph, value: Input) -> int:
    users = [node for node in graph.nodes if value.name in node.refs()]
    looked_up = 0
    for node in users:
        if node.op not in _READS_PART or not isinstance(node.output, TensorSpec) or node.args[0] != Ref(value.name):
            return stored_bytes(value.spec)
        looked_up += stored_bytes(node.output)
    return min(stored_bytes(value.spec), looked_up)


def _empty(spec: TensorSpec) -> torch.Tensor:
    import torch

    return torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype))
