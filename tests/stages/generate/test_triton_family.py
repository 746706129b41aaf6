"""Whole candidates for the core suite's tiny shapes, run by the interpreter and compared with the reference."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.generate.registry import templates_for
from kernelwright.stages.generate.template import Template
from kernelwright.stages.generate.triton_gemm import SHARED_BYTES, Tiles
from kernelwright.stages.translate import translate

PROBLEMS = ["argmax_reduction", "conv_bias_relu", "diagonal_matmul", "gelu_chain", "layernorm", "matmul"]
PROBLEMS += ["matmul_bias_gelu", "mlp_block", "resnet_block", "rmsnorm", "softmax", "sum_reduction"]

POSITIONS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.position = torch.nn.Parameter(torch.rand(24, 40))
        self.scale = torch.nn.Parameter(torch.rand(40))

    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.rand(24, 40)]

def get_init_inputs():
    return []
"""


FREE, PINNED = "torch.tanh(x * self.scale)", "torch.tanh(x + self.position)"


def positions(expression: str) -> Problem:
    return Problem("positions", POSITIONS.format(expression=expression), "positions.py")


RUN = '''
import importlib.util
import pathlib
import tempfile


def run(candidate, problem, rows):
    """What the reference and the candidate give for the same inputs and parameters, cut to `rows` unless it is 0."""
    file = pathlib.Path(tempfile.mkdtemp()) / "candidate.py"
    file.write_text(candidate)
    spec = importlib.util.spec_from_file_location("candidate", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = {}
    exec(problem, task)
    torch.manual_seed(0)
    reference = task["Model"](*task["get_init_inputs"]()).eval()
    model = module.ModelNew(*task["get_init_inputs"]()).eval()
    model.load_state_dict(reference.state_dict())
    inputs = [x[:rows] if rows else x for x in task["get_inputs"]()]
    with torch.no_grad():
        expected, found = reference(*inputs), model(*inputs)
    return [expected], [found]
'''


def templates(problem: Problem) -> list[Template]:
    return [t for t in templates_for(problem, translate(problem), "cuda") if t.name.startswith("triton.")]


def without_fallback(source: str) -> str:
    """The candidate with the way back to the reference's forward closed."""
    closed, count = re.subn(r"return super\(\)\.forward\(.*\)", 'raise AssertionError("left to the reference")', source)
    assert count == 1
    return closed


def choices(template: Template) -> list[dict[str, Any]]:
    """The default, and the first of every parameter: more programs, more passes, smaller tiles."""
    return [dict(template.default), {name: options[0] for name, options in template.space.items()}]


@pytest.fixture(scope="module")
def results(interpret: Callable[..., list[list[Any]]]) -> dict[str, list[tuple[torch.Tensor, torch.Tensor]]]:
    """By problem: (expected, found) of each template, for each of its choices."""
    calls, names = [], []
    for name in PROBLEMS:
        problem = from_spec(f"core/{name}", shape="tiny")
        for template in templates(problem):
            for choice in choices(template):
                calls.append(("run", None, [without_fallback(template.render(choice)), problem.source, 0], {}))
                names.append(name)
    (free,) = templates(positions(FREE))
    calls.append(("run", None, [without_fallback(free.render(free.default)), positions(FREE).source, 7], {}))
    names.append("seven rows")
    found: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in names}
    for name, arguments in zip(names, interpret(RUN, calls), strict=True):
        (expected,), (result,) = arguments[-1]
        found[name].append((expected, result))
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_template_of_a_core_problem_gives_its_result(
    name: str, results: dict[str, list[tuple[torch.Tensor, torch.Tensor]]]
) -> None:
    assert len(results[name]) >= 2
    for expected, found in results[name]:
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_product_with_an_epilogue_is_offered_with_the_library_and_without() -> None:
    offered = {t.name: t for t in templates(from_spec("core/matmul_bias_gelu"))}
    assert offered["triton.fused"].library_ops == ("aten.linear.default",)
    assert offered["triton.gemm"].library_ops == ()


def test_every_tile_on_offer_fits_the_shared_memory_of_a_block() -> None:
    for template in templates(from_spec("core/matmul")):
        for tile in template.space["tile"]:
            m, n, k, stages = map(int, str(tile).split("x"))
            assert Tiles(m, n, k, 8, stages, "tf32x3").shared_bytes(4) <= SHARED_BYTES


def test_the_default_is_one_of_the_choices() -> None:
    for name in PROBLEMS:
        for template in templates(from_spec(f"core/{name}")):
            assert all(template.default[p] in options for p, options in template.space.items())
            assert template.space.keys() == template.default.keys()


def test_nothing_is_offered_for_the_cpu() -> None:
    problem = from_spec("core/softmax")
    assert not [t for t in templates_for(problem, translate(problem), "cpu") if t.name.startswith("triton.")]


def test_another_number_of_rows_is_taken_where_no_parameter_has_as_many(
    results: dict[str, list[tuple[torch.Tensor, torch.Tensor]]],
) -> None:
    ((expected, found),) = results["seven rows"]
    assert found.shape == (7, 40)
    torch.testing.assert_close(found, expected)


def test_the_number_of_rows_is_pinned_where_a_parameter_has_as_many() -> None:
    (template,) = templates(positions(PINNED))
    assert "(24, 40)" in template.render(template.default)


def test_a_kernel_in_float64_stays_with_torch() -> None:
    assert templates(positions("torch.tanh(x.double() * 2.0)")) == []
