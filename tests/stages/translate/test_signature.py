"""Two problems have one signature exactly when the same kernel serves them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelwright.stages.translate.capture import capture
from kernelwright.stages.translate.graph import Arg, Graph, Input, InputKind, Node, Ref, TensorSpec
from kernelwright.stages.translate.signature import canonical, signature


def of(forward: Callable[..., Any], *inputs: torch.Tensor) -> str:
    class Model(nn.Module):
        def forward(self, *args: torch.Tensor) -> Any:
            return forward(*args)

    return signature(capture(Model(), inputs)[0])


def norm(width: int, rows: int, **options: Any) -> str:
    return signature(capture(nn.RMSNorm(width, **options), [torch.randn(rows, width)])[0])


def test_it_starts_readably() -> None:
    assert norm(512, 4096).startswith("rms_norm[f32 a12xb9]#")
    assert norm(512, 5000 - 5000 % 16).startswith("rms_norm[f32 a12xb9]#")
    assert norm(512, 5001).startswith("rms_norm[f32 a12rxb9]#")
    assert norm(512, 512).startswith("rms_norm[f32 a9xa9]#")
    assert of(lambda x: F.relu(x @ x.T) + 1, torch.randn(4, 100)).startswith("matmul+relu+add[f32 4xa6r]#")


def test_the_canonical_text() -> None:
    graph, _ = capture(nn.RMSNorm(512), [torch.randn(4096, 512)])
    assert canonical(graph).splitlines() == [
        "%0 = argument f32 a12xb9",
        "%1 = state f32 b9",
        "%2 = aten.rms_norm.default(%0, (b9), %1) f32 a12xb9",
        "return single %2",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: norm(512, 4096), lambda: norm(768, 8000)),
        (
            lambda: of(lambda a, b: a * 2 + b.exp(), *pair(64)),
            lambda: of(lambda a, b: (b.exp(), a * 2)[1] + b.exp(), *pair(96)),
        ),
        (
            lambda: of(lambda a: a.view(4, -1), torch.randn(32, 64)),
            lambda: of(lambda a: a.view(4, -1), torch.randn(48, 64)),
        ),
        (
            lambda: of(lambda a: a.sum() / 64, torch.randn(32, 64)),
            lambda: of(lambda a: a.sum() / 96, torch.randn(48, 96)),
        ),
    ],
)
def test_equal(one: Callable[[], str], other: Callable[[], str]) -> None:
    assert one() == other()


def pair(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, width), torch.randn(4, width)


@pytest.mark.parametrize(
    "other",
    [
        lambda: norm(512, 9000),
        lambda: norm(512, 4097),
        lambda: norm(4096, 4096),
        lambda: norm(512, 4096, eps=1e-3),
        lambda: norm(512, 4096, elementwise_affine=False),
        lambda: signature(capture(nn.LayerNorm(512, bias=False), [torch.randn(4096, 512)])[0]),
        lambda: signature(capture(nn.RMSNorm(512).bfloat16(), [torch.randn(4096, 512).bfloat16()])[0]),
        lambda: signature(capture(nn.RMSNorm(512), [torch.randn(512, 4096).T])[0]),
        lambda: of(lambda x, w: F.rms_norm(x, (512,), w), torch.randn(4096, 512), torch.randn(512)),
    ],
    ids=["rows", "ragged rows", "square", "eps", "no weight", "operator", "dtype", "layout", "weight as an argument"],
)
def test_different(other: Callable[[], str]) -> None:
    assert norm(512, 4096) != other()


def test_which_operand_is_which_matters() -> None:
    x, y = torch.randn(4, 64), torch.randn(4, 64)
    assert of(lambda a, b: (a - b) * a, x, y) != of(lambda a, b: (a - b) * b, x, y)
    assert of(lambda a, b: a + a, x, y) != of(lambda a, b: a + b, x, y)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Straight lines of pointwise operators over a few inputs of one shape; some nodes are dead."""
    spec = TensorSpec((draw(st.integers(2, 3000)), 64), "float32", (64, 1))
    kinds = draw(st.lists(st.sampled_from([InputKind.ARGUMENT, InputKind.PARAMETER]), min_size=1, max_size=4))
    inputs = [Input(f"i{n}", kind, spec, target=f"w{n}", index=n) for n, kind in enumerate(kinds)]
    names = [i.name for i in inputs]
    nodes: list[Node] = []
    for n in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(["aten.add.Tensor", "aten.mul.Tensor", "aten.exp.default"]))
        operands = draw(st.lists(st.sampled_from(names), min_size=2, max_size=2))[: 1 if "exp" in op else 2]
        nodes.append(Node(f"n{n}", op, tuple(Ref(o) for o in operands), (), spec))
        names.append(f"n{n}")
    return Graph(tuple(inputs), tuple(nodes), (Ref(nodes[-1].name),), "single")


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    def rename(arg: Arg) -> Arg:
        return Ref(names[arg.name]) if isinstance(arg, Ref) else arg

    return replace(
        graph,
        inputs=tuple(replace(i, name=names[i.name], target=f"moved.{i.target}") for i in graph.inputs),
        nodes=tuple(replace(n, name=names[n.name], args=tuple(map(rename, n.args))) for n in graph.nodes),
        outputs=tuple(map(rename, graph.outputs)),
    )


def reordered(graph: Graph, rng: random.Random) -> Graph:
    """Another order of the nodes in which each still comes after its operands."""
    waiting, done, order = list(graph.nodes), {i.name for i in graph.inputs}, []
    while waiting:
        node = rng.choice([n for n in waiting if set(n.refs()) <= done])
        waiting.remove(node)
        done.add(node.name)
        order.append(node)
    return replace(graph, nodes=tuple(order))


@given(graphs(), st.randoms(use_true_random=False))
def test_names_paths_and_order_do_not_matter(graph: Graph, rng: random.Random) -> None:
    names = [i.name for i in graph.inputs] + [n.name for n in graph.nodes]
    new = [f"v{k}" for k in range(len(names))]
    rng.shuffle(new)
    twin = reordered(renamed(graph, dict(zip(names, new, strict=True))), rng)
    assert signature(twin) == signature(graph)


@given(graphs(), st.integers(2, 3000))
def test_only_the_class_of_a_dimension_matters(graph: Graph, rows: int) -> None:
    def resized(spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(rows, 64))

    twin = replace(
        graph,
        inputs=tuple(replace(i, spec=resized(i.spec)) for i in graph.inputs),
        nodes=tuple(replace(n, output=resized(graph.specs[n.name])) for n in graph.nodes),
    )

    def kind(size: int) -> object:
        return size if size <= 16 else (size.bit_length(), size % 16 == 0, size == 64)

    same = kind(rows) == kind(graph.inputs[0].spec.shape[0])
    assert (signature(twin) == signature(graph)) == same


@given(graphs(), st.data())
def test_another_operator_is_another_signature(graph: Graph, data: st.DataObject) -> None:
    *rest, last = graph.nodes
    other = data.draw(st.sampled_from(["aten.sub.Tensor", "aten.div.Tensor"]))
    assert signature(replace(graph, nodes=(*rest, replace(last, op=other)))) != signature(graph)
