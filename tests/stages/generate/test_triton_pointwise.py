"""Every scalar function against torch, and the ways in which operands are broadcast, by the interpreter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Store
from kernelwright.stages.generate.triton_launch import kernels_source, launch_fused
from kernelwright.stages.generate.triton_scalar import EXPRESSIONS
from kernelwright.stages.translate.graph import TensorSpec

FULL = Domain.FULL
CHOICE = {"block": 1024, "rows": 1, "columns": 1024, "num_warps": 4, "num_stages": 2}
POINTS = 3000

ARITY = {name: 1 + max(i for i in range(3) if f"{{{i}}}" in text) for name, text in EXPRESSIONS.items()}
BOOLEAN = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "logical_and", "logical_or", "logical_not"}
ON_BOOLEANS = {"logical_and", "logical_or", "logical_not"}


def spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return TensorSpec(shape, dtype, tuple(torch.empty(shape, device="meta").stride()))


def function_kernel(fn: str, dtype: str) -> FusedKernel:
    """out = fn(a, b, c), as many as it takes; logical functions get a > 0 and b > 0, where gets a > 0."""
    names = "abc"[: ARITY[fn]]
    loads = tuple(Load(n, n, dtype, (1,), FULL) for n in names)
    tests = tuple(Op(f"{n}_test", "gt", (n, 0.0), "bool", FULL) for n in names)
    operands = tuple(f"{n}_test" if fn in ON_BOOLEANS or (fn == "where" and n == "a") else n for n in names)
    result = "bool" if fn in BOOLEAN else dtype
    body = (*tests, Op("y", fn, operands, result, FULL))
    store = Store("y", "y_out", spec((POINTS,), result), FULL)
    return FusedKernel(f"k_{fn}_{dtype}", (POINTS,), 0, loads, body, (store,), ())


def reference(fn: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    if fn in ON_BOOLEANS:
        a, b = a > 0, b > 0
    if fn == "where":
        return torch.where(a > 0, b, c)
    result: torch.Tensor = getattr(torch, fn)(*(a, b, c)[: ARITY[fn]])
    return result


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, torch.inf, -torch.inf, torch.nan, 2.5, -2.5])
    pairs = special.repeat_interleave(11), special.repeat(11), special.repeat(11)
    return [torch.cat([s, torch.randn(POINTS - 121, generator=generator) * 2]).to(dtype) for s in pairs]


@pytest.fixture(scope="module")
def results(interpret: Callable[..., list[list[Any]]]) -> dict[str, torch.Tensor]:
    launches, calls, functions = [], [], ""
    for dtype in ("float32", "float16"):
        tensors = operands(getattr(torch, dtype))
        for fn in EXPRESSIONS:
            kernel = function_kernel(fn, dtype)
            launches.append(launch_fused(kernel, {n: spec((POINTS,), dtype) for n in "abc"}, CHOICE))
            lines = "\n    ".join(launches[-1].lines)
            functions += f"\n\ndef run_{kernel.name}(a, b, c):\n    {lines}\n    return y_out\n"
            calls.append((f"run_{kernel.name}", None, [*tensors], {}))
    found = interpret(kernels_source(launches) + functions, calls)
    return {name.removeprefix("run_k_"): given[-1] for (name, *_), given in zip(calls, found, strict=True)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("fn", EXPRESSIONS)
def test_a_scalar_function_agrees_with_torch(fn: str, dtype: str, results: dict[str, torch.Tensor]) -> None:
    found = results[f"{fn}_{dtype}"]
    exact = reference(fn, *(t.double() for t in operands(getattr(torch, dtype)))).to(found.dtype)
    if found.dtype == torch.bool:
        assert torch.equal(found, exact)
    else:
        bound = 2e-6 if dtype == "float32" else 1e-3
        torch.testing.assert_close(found, exact, rtol=bound, atol=bound, equal_nan=True)


def test_operands_are_broadcast_over_every_dimension(interpret: Callable[..., list[list[Any]]]) -> None:
    """A whole tensor, one value a channel, one a column, a transposed matrix and a scalar."""
    shape = (3, 5, 7)
    given = {"x": (35, 7, 1), "channel": (0, 1, 0), "column": (0, 0, 1), "turned": (0, 1, 5), "scalar": (0, 0, 0)}
    shapes = {"x": shape, "channel": (5,), "column": (7,), "turned": (7, 5), "scalar": ()}
    loads = tuple(Load(n, n, "float32", strides, FULL) for n, strides in given.items())
    sums = [Op(f"s{i}", "add", (f"s{i - 1}" if i > 1 else "x", n), "float32", FULL) for i, n in enumerate(given) if i]
    store = Store("s4", "out", spec(shape, "float32"), FULL)
    kernel = FusedKernel("total", shape, 0, loads, tuple(sums), (store,), ())
    launch = launch_fused(kernel, {n: spec(s, "float32") for n, s in shapes.items()}, CHOICE)
    body = "\n    ".join(launch.lines)
    run = f"\n\ndef run({', '.join(given)}):\n    {body}\n    return out\n"
    tensors = [torch.randn(s) for s in shapes.values()]
    (found,) = interpret(kernels_source([launch]) + run, [("run", None, tensors, {})])
    x, channel, column, turned, scalar = tensors
    torch.testing.assert_close(found[-1], x + channel[:, None] + column + turned.T + scalar)
