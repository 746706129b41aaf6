"""The emitted C++: every choice of a template's parameters gives the right answer, on rows of every awkward length."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate.cpp_kernel import Style, function
from kernelwright.stages.generate.plan import plan
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate import translate
from kernelwright.stages.types import Scalar
from tests.stages.generate.candidates import load, pair, problem, template

RMS_NORM = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight"
EXPRESSIONS = {
    "softmax": "torch.softmax(x, -1)",
    "rms norm": RMS_NORM,
    "norm and activation": "F.gelu(F.layer_norm(x, (x.shape[1],), self.weight, self.bias)) + x",
    "log softmax of a product": "F.log_softmax(x * 2, -1)",
    "flat chain": "torch.tanh(x) * torch.sigmoid(x) - torch.where(x > 0, x, torch.exp(x))",
    "rows by columns": "torch.exp(x * self.weight)",
    "a number a row": "x / (x.abs().sum(-1, keepdim=True) + self.bias[:1])",
    "integers": "(x > self.weight).to(torch.int64) * 3",
}
LENGTHS = (2, 7, 33, 96)
"""Shorter than a vector, shorter than a block, ragged, and whole blocks of 16 and 32."""


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("build")
        patch.setenv("KERNELWRIGHT_BUILD", str(folder))
        yield folder


def agrees(source: str, *inputs: torch.Tensor) -> None:
    reference, candidate = pair(source)
    with torch.no_grad():
        found = candidate(*inputs)
        exact = reference.double()(*(x.double() for x in inputs))
    for a, b in zip(_flat(found), _flat(exact), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=2e-6)


def _flat(value: torch.Tensor | tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_two_ends_of_the_space_are_right_for_any_length(length: int, end: int) -> None:
    made = template(problem([*EXPRESSIONS.values()], [f"torch.randn(24, {length})"], width=length))
    choice = {parameter: options[end] for parameter, options in made.space.items()}
    agrees(made.render(choice), torch.randn(24, length))


def points(of: Template, every: bool) -> Iterator[dict[str, Scalar]]:
    """All of the space, or the default with one parameter changed at a time."""
    if every:
        for values in itertools.product(*of.space.values()):
            yield dict(zip(of.space, values, strict=True))
    else:
        for parameter, options in of.space.items():
            yield from ({**of.default, parameter: option} for option in options)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["softmax", "flat chain"])
def test_every_point_of_the_space_is_right(name: str, every: bool) -> None:
    made = template(problem([EXPRESSIONS[name]], ["torch.randn(24, 72)"]))
    assert {"lanes", "schedule", "stream"} <= made.space.keys()
    assert ("keep" in made.space, "block" in made.space) == (name == "softmax", name == "flat chain")
    x = torch.randn(24, 72)
    for choice in points(made, every):
        agrees(made.render(choice), x)


@pytest.mark.parametrize("stream", [False, True])
def test_a_flat_kernel_takes_any_number_of_elements(stream: bool) -> None:
    made = template(problem([EXPRESSIONS["flat chain"]], ["torch.randn(100)"]))
    source = made.render({**made.default, "stream": stream, "block": 4096})
    for count in (0, 1, 35, 64, 4096, 70001):
        agrees(source, torch.randn(count))


def test_work_for_several_threads_is_right() -> None:
    made = template(problem([RMS_NORM], ["torch.randn(700, 96)"], width=96))
    for schedule in ("static", "dynamic"):
        agrees(made.render({**made.default, "schedule": schedule}), torch.randn(700, 96))


def test_each_parameter_changes_the_source() -> None:
    for name in ("softmax", "rms norm", "flat chain"):
        made = template(problem([EXPRESSIONS[name]], ["torch.randn(512, 96)"], width=96))
        # Without reductions only what is written past the cache goes in blocks of lanes.
        default = {**made.default, "stream": True}
        for parameter, options in made.space.items():
            assert len({made.render({**default, parameter: option}) for option in options}) == len(options)


STRIDED = {
    "turned": ("torch.exp(x) + y", ["torch.randn(50, 40).T", "torch.randn(40, 50)"]),
    "turned rows": ("torch.softmax(x, -1)", ["torch.randn(50, 40).T"]),
    "channels": ("torch.sigmoid(x * y[:, :, :1, :1]) + self.weight[:5]", ["torch.randn(2, 20, 3, 5)"] * 2),
    "the batch repeated": ("x * y[:1]", ["torch.randn(4, 20, 3, 5)"] * 2),
    "rows of two dimensions": ("F.layer_norm(x, (3, 5)) * y", ["torch.randn(4, 20, 3, 5)"] * 2),
    "channels last": ("torch.softmax(x.permute(0, 2, 3, 1), -1)", ["torch.randn(2, 20, 3, 5)"]),
    "every other column": ("torch.exp(x[:, ::2]).sum(-1)", ["torch.randn(40, 50)"]),
    "one number": ("torch.exp(x * y)", ["torch.randn(40, 50)", "torch.randn(())"]),
    "a kernel's turned result": ("(x + 1)[:, ::2].exp() * 2, (x * 3).cumsum(0) + x * 3", ["torch.randn(50, 40).T"]),
    "a kernel's result in parts": ("(x + 1).split(25, 1)[1] * 2", ["torch.randn(50, 40).T"]),
}


@pytest.mark.parametrize("name", STRIDED)
def test_operands_are_found_wherever_they_lie(name: str) -> None:
    expression, inputs = STRIDED[name]
    made = template(problem([expression], inputs))
    scope = {"torch": torch}
    agrees(made.render(made.default), *(eval(text, scope) for text in inputs))


def test_nothing_is_written_past_the_cache_where_rows_would_not_be_aligned() -> None:
    made = template(problem(["torch.softmax(x, -1)"], ["torch.randn(24, 33)"]))
    assert "stream" not in made.space


def test_a_row_too_long_for_the_stack_is_computed_again() -> None:
    made = template(problem(["torch.softmax(x, -1)"], ["torch.randn(16, 40000)"]))
    assert "keep" not in made.space
    assert "_kept" not in made.render(made.default)


def test_dependent_reductions_take_a_pass_each_and_independent_ones_share_it() -> None:
    def passes(expression: str) -> int:
        of = problem([expression], ["torch.randn(24, 96)"])
        made = template(of)
        return made.render(made.default).count("for (int64_t j = 0;")

    assert passes("x.amax(-1) - x.mean(-1)") == 1
    assert passes("torch.softmax(x, -1)") == 3
    assert passes("F.layer_norm(x, (96,))") == 3


NAMES = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(40))
        self.short = nn.Parameter(torch.rand(40))
        self.row = nn.Parameter(torch.rand(40))

    def forward(self, weight, exp, j, template, ctypes):
        exp2 = torch.exp(exp) * self.weight + weight
        return exp2, torch.tanh(j) * template - self.short * ctypes + self.row

def get_inputs():
    return [torch.randn(24, 40) for _ in range(5)]

def get_init_inputs():
    return []
"""


def test_tensors_may_be_called_like_words_of_the_language_like_locals_and_like_each_other() -> None:
    made = template(Problem("names", NAMES, "names.py"))
    agrees(made.render(made.default), *(torch.randn(24, 40) for _ in range(5)))


def test_the_mathematics_stand_above_the_kernel() -> None:
    (kernel,) = plan(translate(problem([RMS_NORM], ["torch.randn(24, 50)"])).graph).kernels
    text = function(kernel, Style())
    assert text.startswith("// row_sum = sum over the row of x * x\n// mul_1 = (x * rsqrt((row_sum / 50) + 1e-06)) *")


def test_a_library_is_compiled_once(build_folder: Path) -> None:
    made = template(problem(["torch.tanh(x) * 7"], ["torch.randn(24, 50)"]))
    source = made.render(made.default)
    before = set(build_folder.iterdir())
    load(source)
    (library,) = set(build_folder.iterdir()) - before
    written = library.stat().st_mtime_ns
    load(source)
    assert set(build_folder.iterdir()) - before == {library}
    assert library.stat().st_mtime_ns == written
