"""The bound: rounding passes, anything else does not."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.types import Check
from kernelwright.stages.verify.tolerance import CHUNK, compare, yardstick


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


def test_one_huge_row_does_not_hide_the_others() -> None:
    eager, exact = TASKS["layer norm"]
    scale = torch.ones(64, 1)
    scale[7] = 1e5
    eager, exact = eager * scale, exact * scale.double()
    assert passes(eager, exact, eager)
    lowered = eager.bfloat16().float()
    lowered[7] = eager[7]
    figures = {c.name: c.passed for c in judge(lowered, exact, eager)}
    assert figures == {
        "output 0: largest error": True,
        "output 0: rms error": True,
        "output 0: rms error of the worst row": False,
    }


def test_a_sum_of_many_terms_may_be_a_running_one() -> None:
    exact = torch.rand(4, 65536, dtype=torch.float64).sum(-1)
    eager = exact.float()
    lost = (exact * (1 + 40 * torch.finfo(torch.float32).eps)).float()
    for terms, accepted in ((1, False), (65536, True)):
        bounds = yardstick(exact, eager, "float64", None, terms=terms)
        assert all(c.passed for c in compare("", lost, exact, eager, bounds)) is accepted


def test_what_hardware_flushes_to_zero_is_no_error() -> None:
    exact = torch.linspace(1e-41, 1e-38, 100, dtype=torch.float64)
    eager = exact.float()
    assert passes(torch.where(eager < torch.finfo(torch.float32).tiny, 0.0, eager), exact, eager)
    assert not passes(eager + 1e-37, exact, eager)


def test_inputs_of_nan_and_inf_leave_a_nan_open_and_nothing_else() -> None:
    inf, nan = float("inf"), float("nan")
    exact = torch.tensor([1.0, inf, nan, -2.0], dtype=torch.float64)
    eager = exact.float()
    bounds = yardstick(exact, eager, "float64", None, lenient=True)
    for output, accepted in (
        ([1.0, inf, 0.0, -2.0], True),
        ([1.0, nan, 7.0, -2.0], True),
        ([1.0, 5.0, nan, -2.0], False),
        ([nan, inf, nan, -2.0], False),
        ([1.1, inf, nan, -2.0], False),
    ):
        assert all(c.passed for c in compare("", torch.tensor(output), exact, eager, bounds)) is accepted


def test_a_16_bit_output_is_held_to_its_own_rounding() -> None:
    exact = torch.randn(64, 256, dtype=torch.float64)
    eager = exact.bfloat16()
    assert passes(exact.float().bfloat16(), exact, eager)
    assert not passes((exact * 1.1).bfloat16(), exact, eager)


@given(st.integers(1, 400), st.integers(1, 70), st.integers(1, 2000))
@settings(max_examples=30)
def test_the_figures_do_not_depend_on_the_chunk(rows: int, columns: int, chunk: int) -> None:
    exact = torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
    eager = exact.float()
    whole = [c.figure for c in judge(eager * 1.5, exact, eager)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CHUNK, "cpu", chunk)
        pieces = [c.figure for c in judge(eager * 1.5, exact, eager)]
    assert pieces == pytest.approx(whole)
