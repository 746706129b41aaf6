"""The bound: rounding passes, anything else does not."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.types import Check
from kernelwright.stages.verify.tolerance import compare, yardstick


def judge(
    output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, tolerance: float | None = None
) -> list[Check]:
    return compare("output 0", output, exact, eager, yardstick(exact, eager, "float64", tolerance))


def passes(output: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, tolerance: float | None = None) -> bool:
    return all(c.passed for c in judge(output, exact, eager, tolerance))


torch.manual_seed(3)
ROWS = torch.randn(64, 4000)
MATRIX = torch.randn(96, 640), torch.randn(640, 80)
TASKS = {
    "softmax of long rows, whose values are tiny": (torch.softmax(ROWS, -1), torch.softmax(ROWS.double(), -1)),
    "layer norm": (F.layer_norm(ROWS, (4000,)), F.layer_norm(ROWS.double(), (4000,))),
    "matrix product": (MATRIX[0] @ MATRIX[1], MATRIX[0].double() @ MATRIX[1].double()),
}
WRONG = {
    "zeros": torch.zeros_like,
    "the mean everywhere": lambda y: torch.full_like(y, float(y.mean())),
    "computed in bfloat16": lambda y: y.bfloat16().float(),
    "computed in float16": lambda y: y.half().float(),
    "rounded to TF32": lambda y: (y.view(torch.int32) & ~0x1FFF).view(torch.float32),
    "one element off by a percent": lambda y: _with_one(y, 1.01),
    "one element nan": lambda y: _with_one(y, float("nan")),
    "shifted by one column": lambda y: y.roll(1, dims=-1),
}


def _with_one(y: torch.Tensor, factor: float) -> torch.Tensor:
    changed = y.clone()
    where = int(y.abs().argmax())
    changed.view(-1)[where] *= factor
    return changed


@pytest.mark.parametrize("task", TASKS)
def test_another_order_of_summation_is_right(task: str) -> None:
    eager, exact = TASKS[task]
    assert passes(eager, exact, eager)
    assert passes(exact.float(), exact, eager)
    noise = (eager.double() - exact) * 3
    assert passes((exact + noise).float(), exact, eager)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fault", WRONG)
def test_what_is_not_rounding_is_wrong(task: str, fault: str) -> None:
    eager, exact = TASKS[task]
    assert not passes(WRONG[fault](eager), exact, eager)


def test_nan_and_inf_must_stand_where_the_reference_has_them() -> None:
    exact = torch.tensor([1.0, float("inf"), float("nan"), -float("inf")], dtype=torch.float64)
    eager = exact.float()
    assert passes(eager.clone(), exact, eager)
    for index, value in ((0, float("nan")), (1, -float("inf")), (1, 5.0), (2, 0.0), (3, float("nan"))):
        output = eager.clone()
        output[index] = value
        (check,) = judge(output, exact, eager)
        assert not check.passed
        assert check.figure == 1


def test_an_overflow_of_the_task_s_own_precision_may_be_kept_or_mended() -> None:
    exact = torch.tensor([1e39, 1.0], dtype=torch.float64)
    eager = exact.float()
    assert eager[0].isinf()
    assert passes(eager.clone(), exact, eager)
    assert passes(torch.tensor([3e38, 1.0]), exact, eager)
    assert not passes(torch.tensor([float("inf"), float("nan")]), exact, eager)


def test_integers_must_be_equal_to_one_of_the_two_right_answers() -> None:
    exact, eager = torch.tensor([1, 5, 9]), torch.tensor([1, 6, 9])
    assert passes(torch.tensor([1, 5, 9]), exact, eager)
    assert passes(torch.tensor([1, 6, 9]), exact, eager)
    assert not passes(torch.tensor([1, 7, 9]), exact, eager)


def test_a_task_may_allow_more() -> None:
    eager, exact = TASKS["matrix product"]
    coarse = eager.bfloat16().float()
    assert not passes(coarse, exact, eager)
    assert passes(coarse, exact, eager, tolerance=0.02)


@given(st.floats(1e-30, 1e30))
@settings(max_examples=20)
def test_the_verdict_does_not_depend_on_the_unit(unit: float) -> None:
    eager, exact = TASKS["layer norm"]
    exact, eager = exact * unit, (exact * unit).float()
    assert passes(eager, exact, eager)
    assert not passes((exact * 1.001).float(), exact, eager)


def test_an_empty_output_is_right() -> None:
    empty = torch.empty(0, 3)
    assert passes(empty, empty.double(), empty)
