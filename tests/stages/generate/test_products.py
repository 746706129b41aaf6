"""Matrix products found in captured modules, and the kernels that may end them."""

from typing import Any

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate.ir import Domain, FusedKernel, LibraryCall, Load, Op, Plan, Store
from kernelwright.stages.generate.products import as_product, join_products
from kernelwright.stages.generate.triton_gemm import Gemm
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import Graph

MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(33, 70)

    def forward(self, {names}):
        return {expression}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def graph_of(expression: str, **shapes: tuple[int, ...]) -> Graph:
    inputs = ", ".join(f"torch.rand({shape})" for shape in shapes.values())
    source = MODULE.format(names=", ".join(shapes), expression=expression, inputs=inputs)
    return translate(Problem("case", source, "case.py")).graph


@pytest.mark.parametrize(
    ("expression", "shapes", "sizes", "right_strides"),
    [
        ("self.linear(a)", {"a": (45, 33)}, (1, 45, 70, 33), (0, 1, 33)),
        ("self.linear(a)", {"a": (5, 9, 33)}, (1, 45, 70, 33), (0, 1, 33)),
        ("a @ b", {"a": (45, 33), "b": (33, 70)}, (1, 45, 70, 33), (0, 70, 1)),
        ("torch.mm(a, b.T)", {"a": (45, 33), "b": (70, 33)}, (1, 45, 70, 33), (0, 1, 33)),
        ("torch.bmm(a, b)", {"a": (3, 45, 33), "b": (3, 33, 70)}, (3, 45, 70, 33), (2310, 70, 1)),
        ("torch.addmm(c, a, b)", {"c": (70,), "a": (45, 33), "b": (33, 70)}, (1, 45, 70, 33), (0, 70, 1)),
    ],
)
def test_a_product_is_recognised_with_its_sizes_and_strides(
    expression: str, shapes: dict[str, Any], sizes: tuple[int, ...], right_strides: tuple[int, ...]
) -> None:
    graph = graph_of(expression, **shapes)
    (product,) = filter(None, (as_product(node, graph) for node in graph.nodes))
    assert (product.batch, product.rows, product.cols, product.depth) == sizes
    assert product.right.strides == right_strides


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("torch.addmm(c, a, b, beta=0.5)", {"c": (70,), "a": (45, 33), "b": (33, 70)}),
        ("self.linear(a.transpose(0, 1))", {"a": (9, 5, 33)}),
        ("a @ b", {"a": (33,), "b": (33, 70)}),
    ],
)
def test_what_the_kernel_does_not_cover_stays_a_library_call(expression: str, shapes: dict[str, Any]) -> None:
    graph = graph_of(expression, **shapes)
    assert not any(as_product(node, graph) for node in graph.nodes)


def pointwise_after(graph: Graph) -> Plan:
    """`sigmoid` of the first product's value, as a kernel over its shape."""
    product, pointwise = next(n for n in graph.nodes if as_product(n, graph)), graph.nodes[-1]
    spec = graph.specs[product.name]
    kernel = FusedKernel(
        "act",
        spec.shape,
        0,
        (Load("p", product.name, spec.dtype, spec.stride, Domain.FULL),),
        (Op("y", "sigmoid", ("p",), spec.dtype, Domain.FULL),),
        (Store("y", pointwise.name, graph.specs[pointwise.name], Domain.FULL),),
        (pointwise.name,),
    )
    return Plan((*(LibraryCall(n) for n in graph.nodes[:-1]), kernel))


def test_a_pointwise_kernel_that_alone_reads_the_product_becomes_its_epilogue_behind_the_bias() -> None:
    graph = graph_of("torch.sigmoid(self.linear(a))", a=(45, 33))
    (gemm,) = join_products(pointwise_after(graph), graph)
    assert isinstance(gemm, Gemm)
    assert [line.fn for line in gemm.epilogue.body] == ["add", "sigmoid"]
    assert set(gemm.epilogue.covers) == {node.name for node in graph.nodes}


def test_a_product_that_forward_also_returns_is_stored_and_keeps_its_reader_apart() -> None:
    graph = graph_of("[h := self.linear(a), torch.sigmoid(h)]", a=(45, 33))
    steps = join_products(pointwise_after(graph), graph)
    assert [type(step) for step in steps] == [Gemm, FusedKernel]
