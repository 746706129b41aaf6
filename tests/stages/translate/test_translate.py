"""Translating problems: those of `core`, one of 100 GB, one whose constructor reads values, broken ones."""

import subprocess
import sys

import pytest

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import suite
from kernelwright.stages.translate import translate

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return [512]
"""


def problem(*changes: tuple[str, str]) -> Problem:
    source = SOURCE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return Problem("norm", source, "norm.py")


def test_what_translation_finds() -> None:
    info = translate(problem())
    assert info.captured_by == "export"
    assert info.signature.startswith("rms_norm[f32 a6xb9]#")
    assert info.flops == 0
    assert info.bytes_least == 4 * (64 * 512 + 512 + 64 * 512)
    assert "aten.rms_norm(x, [512], norm_weight)" in info.functional


def test_inputs_of_100_gb_are_never_allocated() -> None:
    info = translate(problem(("64, 512", "50_000_000, 512")))
    assert info.bytes_least > 200e9
    assert info.signature.startswith("rms_norm[f32 a25xb9]#")


def test_weights_of_100_gb_are_never_allocated() -> None:
    huge = problem(("nn.RMSNorm(width)", "nn.Linear(width, 50_000_000)"))
    assert translate(huge).flops == 2 * 64 * 512 * 50_000_000


def test_a_constructor_that_reads_values_gets_real_tensors() -> None:
    reads = problem(("nn.RMSNorm(width)", "nn.RMSNorm(width, eps=torch.linspace(0, 0.1, 3)[1].item())"))
    assert "0.05" in translate(reads).functional


@pytest.mark.parametrize("spec", suite("core"), ids=lambda p: p.name)
def test_every_problem_of_core_translates(spec: Problem) -> None:
    info = translate(spec)
    assert info.captured_by == "export"
    assert info.bytes_least > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("return self.norm(x)", "return self.morn(x)"), "norm.py:12: Model cannot be traced: AttributeError: "),
        (("return self.norm(x)", "return x if x.sum() > 0 else -x"), "norm.py:12: Model depends on the values"),
        (("64, 512", "64, 513"), "norm.py:12: Model cannot be traced: RuntimeError: "),
        (("nn.RMSNorm(width)", "nn.RMSNarm(width)"), "norm.py:9: "),
    ],
)
def test_a_fault_is_one_line_with_file_and_line(change: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        translate(problem(change))
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, kernelwright.stages.translate; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )
