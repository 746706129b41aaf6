"""The right answer: float64 whatever the reference names, eager's own error beside it, and what a call leaves."""

import dataclasses

import pytest
import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.verify.cases import Case, draw
from kernelwright.stages.verify.oracle import Expected, Oracle, expect
from kernelwright.stages.verify.tolerance import Yardstick, compare
from tests.stages.verify.tasks import model_of, right, task

MATRICES = "torch.randn(24, 64)", "torch.randn(64, 40)"


def answer(result: str, *inputs: str, init: str = "pass", precision: Precision = Precision.STRICT) -> Expected:
    of = task(result, *inputs, init=init)
    model = model_of(of)
    return expect(model, draw(of, "cpu", 3, model, jitter=True), of.tolerance, precision)


@pytest.mark.parametrize(
    "result",
    [
        "(x.bfloat16() @ y.bfloat16()).float()",
        "(x.half() @ y.half()).to(torch.float32)",
        "torch.zeros(24, 40, dtype=torch.float32) + x @ y",
        "torch.empty(24, 40).copy_(x @ y)",
        "torch.mm(x, y, out=torch.empty(24, 40))",
        "torch.autocast('cpu', torch.bfloat16)(torch.mm)(x, y).float()",
    ],
)
def test_a_reference_that_lowers_still_has_a_float64_answer(result: str) -> None:
    of = task(result, *MATRICES)
    model = model_of(of)
    case = draw(of, "cpu", 3, model, jitter=True)
    found = expect(model, case, None)
    x, y = case.tensors
    assert found.precision == "float64"
    torch.testing.assert_close(found.exact[0], x.double() @ y.double(), rtol=1e-14, atol=1e-13)
    bounds = found.bounds[0]
    assert isinstance(bounds, Yardstick)
    assert (bounds.own > 1e-4) == any(word in result for word in ("float16", "half"))


def test_constants_and_quotients_of_integers_are_float64_too() -> None:
    found = answer("torch.arange(5) / 3 + x[:5]", "torch.zeros(8)")
    torch.testing.assert_close(found.exact[0], torch.arange(5).double() / 3, rtol=1e-15, atol=0)


def test_a_reference_without_a_float64_form_is_judged_more_widely_and_says_so() -> None:
    found = answer("x.view(torch.int32).view(torch.float32) * 2", "torch.randn(8, 40)")
    assert found.precision == "float32"
    bounds = found.bounds[0]
    assert isinstance(bounds, Yardstick)
    assert "float32" in bounds.detail
    assert bounds.rms_bound < 1e-5
    assert not right([found.eager[0].bfloat16().float()], found)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_modules_have_a_float64_form(kind: str) -> None:
    found = answer("self.cell(x)", "torch.randn(5, 2, 4)", init=f"self.cell = nn.{kind}(4, 3)")
    assert found.precision == "float64"


def test_running_statistics_after_the_call_are_part_of_the_answer() -> None:
    found = answer("self.norm(x)", "torch.randn(32, 6)", init="self.norm = nn.BatchNorm1d(6)")
    assert set(found.state_after) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    exact, eager, bounds = found.state_after["norm.running_mean"]
    assert exact.dtype == torch.float64
    assert isinstance(bounds, Yardstick)
    torch.testing.assert_close(exact.float(), eager)
    assert found.state_after["norm.num_batches_tracked"][2] is None
    assert found.changes_state
    assert not answer("self.norm(x)", "torch.randn(4, 6)", init="self.norm = nn.BatchNorm1d(6).eval()").changes_state


def test_in_place_work_and_aliases_are_seen() -> None:
    found = answer("(x.relu_(), y[:3], x * 2)", "torch.randn(4, 6)", "torch.randn(5, 2)")
    assert found.in_place
    assert found.aliases == (0, 1, None)
    assert float(found.inputs_after[0].min()) == 0


@pytest.mark.parametrize(
    ("result", "random"),
    [
        ("F.dropout(x, 0.5)", True),
        ("x + torch.rand_like(x)", True),
        ("F.dropout(x, 0.5, training=False)", False),
        ("F.scaled_dot_product_attention(x, x, x)", False),
        ("F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)", True),
    ],
)
def test_operators_that_draw_are_seen(result: str, random: bool) -> None:
    assert answer(result, "torch.randn(1, 2, 8, 16)").random is random


def test_several_nested_and_missing_outputs() -> None:
    found = answer("{'a': [x, None], 'b': (x > 0, x.long(), 3, x.sum().item())}", "torch.randn(4, 6)")
    assert [t.dtype for t in found.eager] == [torch.float32, torch.bool, torch.int64]


def test_complex_outputs_are_compared_by_value() -> None:
    found = answer("torch.fft.rfft(x)", "torch.randn(4, 64)")
    assert right([found.eager[0]], found)
    assert not right([found.eager[0] * 1.001], found)


@pytest.mark.parametrize("sign", ["torch.randn", "torch.rand"])
def test_the_tf32_contract_allows_tf32_and_no_less(sign: str) -> None:
    inputs = (f"{sign}(32, 256)", f"{sign}(256, 48)")
    of = task("x @ y", *inputs)
    model = model_of(of)
    case = draw(of, "cpu", 3, model, jitter=False)
    x, y = case.tensors

    def rounded(t: torch.Tensor, bits: int) -> torch.Tensor:
        return ((t.view(torch.int32) + (1 << bits - 1)) & -(1 << bits)).view(torch.float32)

    def truncated(t: torch.Tensor) -> torch.Tensor:
        return (t.view(torch.int32) & -(1 << 13)).view(torch.float32)

    strict, tf32 = expect(model, case, None), expect(model, case, None, Precision.TF32)
    for cut in (lambda t: rounded(t, 13), truncated):
        product = cut(x) @ cut(y)
        assert right([product], tf32)
        assert not right([product], strict)
    fp8 = x.to(torch.float8_e4m3fn).float() @ y.to(torch.float8_e4m3fn).float()
    assert not right([fp8], tf32)
    if sign == "torch.randn":
        assert not right([x.bfloat16().float() @ y.bfloat16().float()], tf32)


def test_the_task_contract_allows_what_the_dtype_costs() -> None:
    strict, loose = (answer("x @ y", *MATRICES, precision=p) for p in (Precision.STRICT, Precision.TASK))
    off = (strict.exact[0] * (1 + 4e-6)).float()
    assert right([off], loose)
    assert not right([off], strict)
    assert not right([loose.eager[0].bfloat16().float()], loose)


class RoundsItsOperands(torch.nn.Module):
    """Stands where a GPU's reference stands that sets allow_tf32: float32 operands are rounded to ten bits."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype is torch.float32:
            a, b = ((t.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32) for t in (a, b))
        return a @ b


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_a_reference_in_tf32_allows_a_kernel_that_cuts_operands_off(offset: float) -> None:
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(shape, generator=generator) for shape in ((64, 96), (96, 80)))
    oracle = Oracle(RoundsItsOperands(), None)
    oracle.expect(Case({"list": [{"tensor": 0}, {"tensor": 1}]}, (a, b), {}))
    case = Case({"list": [{"tensor": 0}, {"tensor": 1}]}, (a + offset, b + offset), {}, stressed=bool(offset))
    expected = oracle.expect(case)
    cut, half = ((a + offset).view(torch.int32) & mask for mask in (~0x1FFF, ~0x3FFFF))
    other = (b + offset).view(torch.int32) & ~0x1FFF
    right = cut.view(torch.float32) @ other.view(torch.float32)
    wrong = half.view(torch.float32) @ other.view(torch.float32)

    def passes(output: torch.Tensor) -> bool:
        return all(c.passed for c in compare("x", output, expected.exact[0], expected.eager[0], expected.bounds[0]))

    assert passes(right)
    assert not passes(wrong)


def test_inputs_are_not_rounded_out_of_their_range_where_that_would_end_the_device_s_context() -> None:
    of = task("F.binary_cross_entropy(x, y)", "torch.rand(8, 100)", "torch.rand(8, 100).round()")
    model = model_of(of)
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0].double()))
    first = draw(of, "cpu", 1, model, jitter=False)
    edges = torch.zeros(8, 100).index_fill_(1, torch.arange(50), 1.0)
    stressed = dataclasses.replace(first, tensors=(edges, first.tensors[1]), stressed=True)
    expect(model, stressed, None)
    assert len(seen) > 2, "the allowance is worked out too"
    assert all(bool(((x >= 0) & (x <= 1)).all()) for x in seen)
