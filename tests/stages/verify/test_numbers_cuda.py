"""The same on a GPU, where eager can round to TF32 and a probe must not end the device's context."""

import time

import pytest
import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.verify import admission, memory_needs, probes
from kernelwright.stages.verify.oracle import expect
from tests.stages.verify.tasks import failed, model_of, right, task

pytestmark = pytest.mark.gpu

ALLOW = """
class allowed:
    def __enter__(self):
        self.before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True

    def __exit__(self, *ignored):
        torch.backends.cuda.matmul.allow_tf32 = self.before


def product(x, y):
    with allowed():
        return x @ y
"""
MATRICES = "torch.randn(256, 384)", "torch.randn(384, 320) / 20"


def tf32(x: torch.Tensor, y: torch.Tensor, state: object = None) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return x @ y
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_tf32_passes_only_where_the_reference_or_the_contract_has_it() -> None:
    plain, lowered = task("x @ y", *MATRICES), task("product(x, y)", *MATRICES, constants=ALLOW)
    for of, precision, accepted in (
        (plain, Precision.STRICT, False),
        (plain, Precision.TF32, True),
        (lowered, Precision.STRICT, True),
    ):
        series = probes.plan(of, model_of(of, "cuda"), "cuda", 3, precision=precision)
        assert (failed(series, tf32) == []) is accepted
        assert failed(series, lambda x, y, state: torch.mm(x, y)) == []


def test_a_value_out_of_range_does_not_end_the_context() -> None:
    of = task("F.binary_cross_entropy(x, y)", "torch.rand(8, 100)", "torch.rand(8, 100).round()")
    probes.plan(of, model_of(of, "cuda"), "cuda", 3)
    of = task("F.embedding(y, x)", "torch.randn(10, 4)", "torch.randint(10, (50,))")
    probes.plan(of, model_of(of, "cuda"), "cuda", 3)
    torch.cuda.synchronize()


def test_a_device_s_memory_is_looked_at_before_anything_is_allocated() -> None:
    total, free = memory_needs.memory("cuda")
    assert total >= free > 2**30
    needs = memory_needs.predict(task("x * 2", "torch.randn(2**22, 2**20)"), "cuda")
    assert needs is not None
    assert needs.bytes > total


def test_a_large_pointwise_problem_costs_milliseconds_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    of = task("F.gelu(x)", "torch.randn(1024, 16384)")
    model = model_of(of, "cuda")
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        series = probes.plan(of, model, "cuda", 3)
        checks = admission.admit(of, model, series.pairs, Precision.STRICT)
        torch.cuda.synchronize()
        drawn = time.perf_counter()
        assert all(right(e.eager, e) for e in series.expected)
        compared = time.perf_counter()
    assert all(c.passed for c in checks)
    with capsys.disabled():
        print(
            f"\n1024x16384 float32: {len(series.cases)} cases and admission {drawn - start:.3f} s, "
            f"comparing {1e3 * (compared - drawn) / len(series.cases):.2f} ms a case"
        )


def test_half_precision_products_are_judged_by_their_own_error() -> None:
    of = task("x @ y", "torch.randn(128, 512).half()", "torch.randn(512, 96).half()")
    model = model_of(of, "cuda")
    series = probes.plan(of, model, "cuda", 3)
    assert failed(series, lambda x, y, state: (x.float() @ y.float()).half()) == []
    case = series.cases[0]
    assert expect(model, case, None).precision == "float64"
