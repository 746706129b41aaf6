"""What the built-in generator writes is own work, also where it leaves a product to the library."""

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import templates_for
from kernelwright.stages.translate import translate
from kernelwright.stages.types import Backend
from kernelwright.stages.verify.own_work import judge
from kernelwright.stages.verify.source_form import read_form

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(48) + 0.5)

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.randn(32, 48)]

def get_init_inputs():
    return []
"""

RESULTS = {
    "torch.softmax(x * self.weight, -1)": [],
    "torch.nn.functional.gelu(torch.mm(x, torch.outer(self.weight, self.weight)) + 1)": ["aten.mm.default"],
}


@pytest.mark.parametrize("result", RESULTS)
def test_generated_kernels_matter(inspect, result):
    problem = Problem("p", PROBLEM.format(result=result), "p.py")
    (template,) = [t for t in templates_for(problem, translate(problem), "cpu") if t.backend == "cpp"]
    source = template.render(template.default) + "\n\ndef get_inputs():\n    return [torch.randn(32, 48)]\n"
    report = inspect(source)
    work, checks = judge(report, read_form(source), claimed=Backend.CPP, no_library=False)
    assert [c for c in checks if not c.passed] == []
    assert any(work.ablated.values())
    assert [name for name in work.operators if "mm" in name] == RESULTS[result]
