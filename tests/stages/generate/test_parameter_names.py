"""Parameters of modules kept in a list, a dictionary or a Sequential: their paths are no Python expressions."""

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import templates_for
from kernelwright.stages.translate import translate

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, x):
        return torch.tanh({forward})


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return []
"""
KINDS = {
    "sequential": ("self.net = nn.Sequential(nn.ReLU(), nn.LayerNorm(32))", "self.net(x)"),
    "list": ("self.norms = nn.ParameterList([nn.Parameter(torch.rand(32))])", "x * self.norms[0]"),
    "dictionary": ("self.by = nn.ParameterDict({'in': nn.Parameter(torch.rand(32))})", "x + self.by['in']"),
    "buffer": ("self.add_module('0', nn.BatchNorm1d(32)); self.eval()", "x - getattr(self, '0').running_var"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_reads_them(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constructor, forward = KINDS[kind]
    source = SOURCE.format(constructor=constructor, forward=forward)
    problem = Problem(kind, source, f"{kind}.py")
    info = translate(problem)
    for device in ("cpu", "cuda"):
        assert [ast.parse(t.render(t.default)) for t in templates_for(problem, info, device)]
    (template, *_) = templates_for(problem, info, "cpu")
    path = tmp_path / f"candidate_{kind}.py"
    path.write_text(template.render(template.default))
    monkeypatch.setenv("KERNELWRIGHT_BUILD", str(tmp_path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, x = module.ModelNew(), torch.randn(8, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(x), module.Model.forward(model, x))
