"""The helper functions against torch in float64, by units in the last place of float32."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.triton_math import HELPERS, helper_source

UNARY = {
    "_exp": torch.exp,
    "_expm1": torch.expm1,
    "_log1p": torch.log1p,
    "_tanh": torch.tanh,
    "_round": torch.round,
    "_trunc": torch.trunc,
}
BINARY = {"_pow": torch.pow}
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {**UNARY, **BINARY}

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 3.0, -3.0, 88.5, -87.0, 100.0, -100.0, 1e-30, 1e30, -1e30, 8388609.0]
SPECIAL += [float("inf"), float("-inf"), float("nan")]
SIZE = 8192
LARGEST_ERROR_ULP = 3.0
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def points() -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of special values, then random values near zero, of moderate and of any size."""
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor(SPECIAL)
    count = SIZE - len(SPECIAL) ** 2
    scale = torch.tensor([0.1, 1.0, 4.0, 40.0])[torch.arange(count) % 4]
    x = torch.cat([special.repeat_interleave(len(SPECIAL)), torch.randn(count, generator=generator) * scale])
    y = torch.cat([special.repeat(len(SPECIAL)), torch.randn(count, generator=generator) * 3])
    return x, y


@pytest.fixture(scope="module")
def results(interpret: Callable[..., list[list[Any]]]) -> dict[str, torch.Tensor]:
    x, y = points()
    source, launches = helper_source(set(HELPERS)), []
    for name in FUNCTIONS:
        call = f"{name}(x, y)" if name in BINARY else f"{name}(x)"
        source += f"""

@triton.jit
def kernel{name}(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, {call})
"""
        launches.append((f"kernel{name}", (1,), [x, y, torch.empty(SIZE)], {"N": SIZE}))
    return {name: arguments[2] for name, arguments in zip(FUNCTIONS, interpret(source, launches), strict=True)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_helper_is_accurate_and_keeps_nan_and_infinity(name: str, results: dict[str, torch.Tensor]) -> None:
    x, y = points()
    arguments = (x.double(), y.double()) if name in BINARY else (x.double(),)
    exact = FUNCTIONS[name](*arguments)
    rounded, found = exact.float(), results[name]

    assert torch.equal(found.isnan(), rounded.isnan())
    assert torch.equal(found[rounded.isinf()], rounded[rounded.isinf()])
    finite = rounded.isfinite()
    ulp = torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()
    error = (found.double() - exact).abs() / ulp.clamp(min=SMALLEST_NORMAL).double()
    # The unit is bounded below by the smallest normal number: GPUs flush what lies under it.
    assert error[finite].max() <= LARGEST_ERROR_ULP


def test_only_the_helpers_in_use_are_written_each_after_those_it_calls() -> None:
    source = helper_source({"_tanh"})
    assert source.index("def _exp(") < source.index("def _expm1(") < source.index("def _tanh(")
    assert "_pow" not in source
