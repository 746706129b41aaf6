"""Modules to trace, each with its example inputs: what the problems of `core` and users' own modules are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rms, self.layer = nn.RMSNorm(24), nn.LayerNorm(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layer(self.rms(x)), dim=-1)


class ConvBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu_(self.norm(self.conv(x))), 2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, 4, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class GruOverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(x.shape[0], 5, device=x.device)
        for step in x.unbind(1):
            hidden = self.cell(step, hidden)
        return hidden


class WithBuffers(nn.Module):
    """A mask with infinities, a table that no state dict holds, and a plain tensor attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((9, 9), float("-inf")).triu(1))
        self.register_buffer("table", torch.arange(9), persistent=False)
        self.scale = torch.tensor(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * self.scale + self.mask, -1) + self.table


class SeveralOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, int]:
        values, indices = x.max(dim=1)
        return values, indices, None, 3


class ListOutput(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x + 1, x.sum()]


class DictOutput(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"double": x * 2, "half": x / 2}


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 7)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.embed(tokens)), labels)


class PlainArguments(nn.Module):
    def forward(self, x: torch.Tensor, power: int, factor: float, bias: torch.Tensor, extra: None) -> torch.Tensor:
        y = x**power * factor + bias
        return y if extra is None else y + extra


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y += 1
        y[:, 0] = torch.tensor([5.0, 6.0, 7.0])
        return F.leaky_relu(y, 0.1, inplace=True)


class Counts(nn.Module):
    """Writes to a buffer, and to its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum(0)
        x.mul_(2)
        return self.total / x


class NoGradAndAutocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Dropout(0.0), nn.Linear(20, 4), nn.ReLU(inplace=True))


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    inputs: Callable[[], list[Any]]
    form: str = "single"


CASES = {
    "norms": Case(Norms, lambda: [torch.randn(5, 24)]),
    "mlp": Case(mlp, lambda: [torch.randn(5, 12)]),
    "conv in evaluation": Case(lambda: ConvBlock().eval(), lambda: [torch.randn(2, 3, 8, 8)]),
    "conv in training": Case(ConvBlock, lambda: [torch.randn(2, 3, 8, 8)]),
    "attention": Case(Attention, lambda: [torch.randn(2, 7, 32)]),
    "gru": Case(GruOverTime, lambda: [torch.randn(3, 4, 6)]),
    "library lstm": Case(lambda: nn.LSTM(6, 5), lambda: [torch.randn(4, 3, 6)], "other"),
    "buffers": Case(WithBuffers, lambda: [torch.randn(9, 9)]),
    "several outputs": Case(SeveralOutputs, lambda: [torch.randn(3, 6)], "tuple"),
    "list output": Case(ListOutput, lambda: [torch.randn(3, 6)], "list"),
    "dict output": Case(DictOutput, lambda: [torch.randn(3, 6)], "other"),
    "loss": Case(Loss, lambda: [torch.randint(0, 50, (6,)), torch.randint(0, 7, (6,))]),
    "plain arguments": Case(PlainArguments, lambda: [torch.rand(3, 4), 2, 0.5, torch.rand(4), None]),
    "in place": Case(InPlace, lambda: [torch.randn(3, 4)]),
    "write-back": Case(Counts, lambda: [torch.randn(3, 4)]),
    "autocast": Case(NoGradAndAutocast, lambda: [torch.randn(3, 8)]),
    "transposed input": Case(Norms, lambda: [torch.randn(24, 5).T]),
}
