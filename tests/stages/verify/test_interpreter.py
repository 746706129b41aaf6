"""Triton candidates judged by Triton's interpreter against float64, with no GPU."""

import pytest
import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.types import Backend, Candidate
from kernelwright.stages.verify.interpreter import NOT_RUN, interpret

SOFTMAX = """
import torch, triton, triton.language as tl

@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + i, powers / tl.sum(powers, 0), mask=i < columns)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda"
        y = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def softmax(inputs: str, *, shapes: str = "{}", dtype: str = "float32") -> Problem:
    source = f"""
import torch
ROWS = {inputs}
SHAPES = {shapes}
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
def get_inputs():
    return [torch.randn(ROWS, 250, dtype=torch.{dtype})]
def get_init_inputs():
    return []
"""
    return Problem("softmax", source, "softmax.py")


def checked(source: str, problem: Problem, deadline_s: float = 120.0):
    (check,) = interpret(Candidate(source, Backend.TRITON, "test"), problem, deadline_s=deadline_s)
    return check


def changed(old: str, new: str) -> str:
    assert old in SOFTMAX
    return SOFTMAX.replace(old, new)


def test_right_kernel_passes_at_the_tiny_shape_of_a_suite():
    check = checked(SOFTMAX, from_spec("core/softmax"))
    assert check.passed, check.detail
    assert 0 <= check.figure <= check.bound < 1e-4
    assert check.detail == "shape tiny"


def test_wrong_kernel_fails_with_figure_and_bound():
    check = checked(changed("tl.exp(values - tl.max(values, 0))", "tl.exp(values) + 0.01"), softmax("40"))
    assert not check.passed
    assert check.figure > check.bound > 0
    assert "own size: error" in check.detail


def test_bfloat16_is_replaced_by_float32_and_the_evidence_says_so():
    check = checked(SOFTMAX, softmax("12", dtype="bfloat16"))
    assert check.passed, check.detail
    assert "bfloat16 replaced by float32" in check.detail
    assert check.bound < 1e-3


@pytest.mark.slow
def test_candidate_that_names_bfloat16_is_not_blamed_for_the_interpreter():
    check = checked(
        changed("powers / tl.sum(powers, 0)", "(powers.to(tl.bfloat16) * 0.5).to(tl.float32)"), softmax("12")
    )
    assert not check.passed
    assert check.detail.startswith(NOT_RUN)
    assert "computes in bfloat16" in check.detail


@pytest.mark.slow
def test_leading_dimension_is_cut_where_there_is_no_tiny_shape():
    check = checked(SOFTMAX, softmax("5000"))
    assert check.passed, check.detail
    assert check.detail == "16 rows"


@pytest.mark.slow
def test_candidate_written_for_one_size_is_judged_at_that_size():
    check = checked(changed("(x.shape[0],)", "(1100,)"), softmax("1100"))
    assert check.passed, check.detail
    assert check.detail == "own size"


def test_size_beyond_reach_is_not_run_with_its_reason():
    check = checked(SOFTMAX, softmax("1_000_000"))
    assert not check.passed
    assert check.figure is None
    assert check.detail.startswith(NOT_RUN)
    assert "no smaller shape is known" in check.detail


def test_store_outside_a_tensor_is_a_failure_that_names_the_signal():
    check = checked(
        changed("y + row * columns + i, powers", "y + (row + 1000000) * columns * 9000 + i, powers"), softmax("12")
    )
    assert not check.passed
    assert "SIGSEGV" in check.detail or "SIGABRT" in check.detail


@pytest.mark.slow
def test_exception_names_the_candidates_line():
    check = checked(changed("y = torch.empty_like(x)", "y = torch.empty_lick(x)"), softmax("12"))
    assert not check.passed
    assert "candidate.py:15 in forward" in check.detail
    assert "empty_lick" in check.detail


def test_hang_is_ended_and_counts_as_not_run():
    check = checked(changed("y = torch", "import time; time.sleep(600); y = torch"), softmax("12"), deadline_s=2)
    assert not check.passed
    assert check.detail.startswith(NOT_RUN)


def test_parameters_of_the_reference_reach_the_candidate():
    problem = Problem(
        "scale",
        """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n))
    def forward(self, x):
        return x * self.weight, x.argmax(dim=-1)
def get_inputs():
    return [torch.randn(4, 64)]
def get_init_inputs():
    return [64]
""",
        "scale.py",
    )
    source = """
import torch, triton, triton.language as tl
@triton.jit
def scale(x, w, y, best, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    v = tl.load(x + row * N + i)
    tl.store(y + row * N + i, v * tl.load(w + i))
    tl.store(best + row, tl.argmax(v, 0).to(tl.int64))
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))
    def forward(self, x):
        y, best = torch.empty_like(x), torch.empty(x.shape[0], dtype=torch.int64, device="cuda")
        scale[(x.shape[0],)](x, self.weight, y, best, x.shape[1])
        return y, best
"""
    values, indices = interpret(Candidate(source, Backend.TRITON, "test"), problem, deadline_s=120)
    assert values.passed, values.detail
    assert indices.passed, indices.detail
    assert indices.figure == indices.bound == 0.0


@pytest.mark.parametrize(
    ("found", "error"), [([1.0, float("nan")], 0.0), ([1.5, float("nan")], 0.5), ([1.0, 2.0], float("inf"))]
)
def test_nan_must_be_where_the_reference_has_it(found, error):
    from kernelwright.stages.verify.interpreter import _error

    exact = torch.tensor([1.0, float("nan")], dtype=torch.float64)
    assert _error(torch.tensor(found), exact) == error
