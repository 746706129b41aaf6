"""Outputs that say where a value lies: any of equal values is right, and nothing else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.verify.cases import Case, draw
from kernelwright.stages.verify.indices import IndexRule
from kernelwright.stages.verify.oracle import Expected, expect
from tests.stages.verify.tasks import model_of, right, task

TIES = "torch.randint(4, (6, 20)).float()"


def answer(result: str, *inputs: str) -> tuple[Case, Expected]:
    of = task(result, *inputs)
    model = model_of(of)
    case = draw(of, "cpu", 3, model, jitter=False)
    return case, expect(model, case, None)


@pytest.mark.parametrize(
    "result",
    [
        "x.argmax(-1)",
        "x.argmin(0)",
        "x.argmax()",
        "x.argmax(-1, keepdim=True)",
        "x.max(1)[1]",
        "x.topk(3)[1]",
        "x.sort(0, descending=True)[1]",
        "torch.argsort(x, -1)",
        "x.cummax(1)[1]",
        "x.kthvalue(3, 1)[1]",
        "x.topk(2)[1].to(torch.int32)",
        "x.argmax(-1)[:, None]",
        "(x @ x.t()).argmax(-1)",
        "F.max_pool2d(x[None, None], 2, return_indices=True)[1]",
    ],
)
def test_what_points_to_values_is_known(result: str) -> None:
    _, expected = answer(result, TIES)
    assert isinstance(expected.bounds[0], IndexRule)
    assert right([expected.eager[0]], expected)
    assert not right([torch.full_like(expected.eager[0], -1)], expected)
    assert not right([torch.full_like(expected.eager[0], 10**6)], expected)
    assert not right([torch.zeros_like(expected.eager[0])], expected)


@pytest.mark.parametrize(
    "result", ["(x > 1).long()", "x.long()", "x.argmax(-1) + 1", "torch.bincount(x.long().view(-1))"]
)
def test_other_integers_must_be_equal(result: str) -> None:
    _, expected = answer(result, TIES)
    assert expected.bounds[0] is None
    assert right([expected.eager[0]], expected)
    assert not right([expected.eager[0] + 1], expected)


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=40)
def test_any_of_equal_values_is_right_and_no_other(seed: int, levels: int) -> None:
    case, expected = answer("x.argmax(-1)", f"torch.randint({levels}, (6, 20)).float()")
    (x,) = case.tensors
    choice = torch.multinomial(
        (x == x.amax(-1, keepdim=True)).float(), 1, generator=torch.Generator().manual_seed(seed)
    )
    assert right([choice[:, 0]], expected)
    below = (x < x.amax(-1, keepdim=True)).float()
    rows = below.sum(-1) > 0
    if rows.any():
        wrong = choice[:, 0].clone()
        wrong[rows] = torch.multinomial(below[rows], 1)[:, 0]
        assert not right([wrong], expected)


@given(st.permutations(range(20)))
@settings(max_examples=30)
def test_a_sort_s_indices_are_any_permutation_that_sorts(order: list[int]) -> None:
    case, expected = answer("x.sort(-1)[1]", TIES)
    (x,) = case.tensors
    shuffle = torch.tensor(order)
    found = shuffle[x[:, shuffle].sort(dim=-1, stable=True).indices]
    assert right([found], expected)
    assert not right([shuffle.expand(6, 20).contiguous()], expected)


def test_one_place_may_not_be_given_twice() -> None:
    _, expected = answer("x.topk(3)[1]", "torch.ones(4, 9)")
    assert right([torch.tensor([[8, 1, 4]] * 4)], expected)
    assert not right([torch.tensor([[8, 1, 8]] * 4)], expected)


def test_values_that_rounding_cannot_tell_apart_are_equal() -> None:
    _, expected = answer("(x @ y).argmax(-1)", "torch.randn(5, 64)", "torch.randn(64, 1).expand(64, 7).contiguous()")
    assert right([torch.tensor([0, 6, 2, 3, 1])], expected)


def test_where_the_value_is_nan_any_place_is_right() -> None:
    _, expected = answer("x.argmax(-1)", "torch.cat([torch.full((1, 5), torch.nan), torch.arange(5.0)[None]])")
    assert right([torch.tensor([3, 4])], expected)
    assert not right([torch.tensor([3, 3])], expected)
