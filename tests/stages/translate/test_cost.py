"""Operations and bytes of graphs whose costs are known by hand."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.stages.translate.capture import capture
from kernelwright.stages.translate.cost import bytes_least, flops, stored_bytes
from kernelwright.stages.translate.graph import Graph, TensorSpec
from tests.stages.translate import modules


def graph_of(model: nn.Module, *inputs: Any) -> Graph:
    return capture(model, inputs)[0]


class Scale(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y


class Attend(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q)


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (nn.Linear(16, 32), (8, 16), 2 * 8 * 16 * 32),
        (nn.Conv2d(3, 8, 3, padding=1), (2, 3, 10, 10), 2 * 2 * 8 * 10 * 10 * 3 * 9),
        (Attend(), (2, 4, 64, 32), 2 * (2 * 2 * 4 * 64 * 64 * 32)),
        (nn.GRU(8, 16), (5, 2, 8), 2 * 5 * 2 * 48 * (8 + 16)),
        (nn.GELU(), (8, 16), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_flops(model: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    assert flops(graph_of(model, torch.randn(shape))) == expected


def test_every_input_and_output_counts_once() -> None:
    graph = graph_of(nn.Linear(16, 32), torch.randn(8, 16))
    assert bytes_least(graph) == 4 * (8 * 16 + 32 * 16 + 32 + 8 * 32)


def test_an_unread_input_does_not_count() -> None:
    class Ignores(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + 1

    assert bytes_least(graph_of(Ignores(), torch.randn(8), torch.randn(1000))) == 4 * (8 + 8)


def test_repeated_elements_are_stored_once() -> None:
    graph = graph_of(Scale(), torch.randn(8, 100), torch.randn(100).expand(8, 100))
    assert bytes_least(graph) == 4 * (800 + 100 + 800)
    assert stored_bytes(TensorSpec((8, 100), "bfloat16", (0, 1))) == 200
    assert stored_bytes(TensorSpec((0, 100), "int64", (100, 1))) == 0


def test_a_table_counts_for_what_is_looked_up() -> None:
    graph = graph_of(nn.Embedding(1_000_000, 16), torch.zeros(4, dtype=torch.int64))
    assert bytes_least(graph) == 4 * 8 + 2 * (4 * 16 * 4)


def test_write_backs_count() -> None:
    graph = graph_of(modules.Counts(), torch.randn(3, 4))
    read, written = 12 + 4, 12 + 4 + 12
    assert bytes_least(graph) == 4 * (read + written)
