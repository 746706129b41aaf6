"""The functional form runs, and computes what the module computes: outputs and write-backs."""

import copy
import operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelwright.stages.translate.capture import capture
from kernelwright.stages.translate.functional import arguments, functional
from kernelwright.stages.translate.graph import Graph, InputKind
from tests.stages.translate import modules
from tests.stages.translate.modules import CASES


def explicit_tensors(graph: Graph, model: nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [
        inputs[i.index] if i.kind is InputKind.ARGUMENT else operator.attrgetter(i.target)(model)
        for i in arguments(graph)
    ]


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_it_computes_what_the_module_computes(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = CASES[name].make(), CASES[name].inputs()
    graph, _ = capture(model, inputs)
    twin, twin_inputs = copy.deepcopy(model), copy.deepcopy(inputs)
    expected = pytree.tree_leaves(model(*inputs))

    namespace: dict[str, Any] = {}
    exec(functional(graph), namespace)
    found = namespace["forward"](*explicit_tensors(graph, twin, twin_inputs))

    for e, f in zip(expected, pytree.tree_leaves(found), strict=True):
        torch.testing.assert_close(f, e, rtol=0, atol=0, equal_nan=True)
    for path, value in model.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[path], value, rtol=0, atol=0)
    for given, twins in zip(inputs, twin_inputs, strict=True):
        assert torch.equal(given, twins) if isinstance(given, torch.Tensor) else given == twins


def test_it_reads_like_code() -> None:
    graph, _ = capture(modules.mlp(), [torch.randn(5, 12)])
    assert functional(graph) == (
        "import torch\n"
        "\n"
        "aten = torch.ops.aten\n"
        "\n"
        "\n"
        "def forward(input, _0_weight, _0_bias, _3_weight, _3_bias):\n"
        "    linear = aten.linear(input, _0_weight, _0_bias)\n"
        "    gelu = aten.gelu(linear)\n"
        "    linear_1 = aten.linear(gelu, _3_weight, _3_bias)\n"
        "    relu = aten.relu(linear_1)\n"
        "    return relu\n"
    )


def test_tensors_made_from_nothing_follow_the_arguments() -> None:
    graph, _ = capture(modules.GruOverTime(), [torch.randn(3, 4, 6)])
    assert "aten.zeros([3, 5], device=x.device)" in functional(graph)
