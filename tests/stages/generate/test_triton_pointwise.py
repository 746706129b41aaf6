"""Every scalar function against torch, and the ways in which operands are broadcast, by the interpreter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Store
from kernelwright.stages.generate.scalar import COMPARISONS
from kernelwright.stages.generate.scalar import FUNCTIONS as ARITY
from kernelwright.stages.generate.triton_launch import emit_fused, kernels_source
from kernelwright.stages.generate.triton_scalar import EXPRESSIONS
from kernelwright.stages.translate.graph import Graph, Input, InputKind, TensorSpec

FULL = Domain.FULL
CHOICE = {"block": 1024, "num_warps": 4}
POINTS = 3000

FUNCTIONS_TRIED = [fn for fn in ARITY if fn != "cast"]
BOOLEAN = {*COMPARISONS, "isnan", "isinf", "logical_and", "logical_or", "logical_not"}
ON_BOOLEANS = {"logical_and", "logical_or", "logical_not"}


def spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return TensorSpec(shape, dtype, tuple(torch.empty(shape, device="meta").stride()))


def graph_of(specs: dict[str, TensorSpec]) -> Graph:
    inputs = tuple(Input(name, InputKind.ARGUMENT, s, index=i) for i, (name, s) in enumerate(specs.items()))
    return Graph(inputs, (), (), "single")


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
    emitted, calls = [], []
    for dtype in ("float32", "float16"):
        tensors = operands(getattr(torch, dtype))
        for fn in FUNCTIONS_TRIED:
            kernel = function_kernel(fn, dtype)
            emitted.append(emit_fused(kernel, graph_of({n: spec((POINTS,), dtype) for n in "abc"}), CHOICE))
            calls.append((kernel.name, None, tensors[: ARITY[fn]], {}))
    found = interpret(kernels_source(emitted), calls)
    return {name.removeprefix("k_"): given[-1] for (name, *_), given in zip(calls, found, strict=True)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("fn", FUNCTIONS_TRIED)
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
    emitted = emit_fused(kernel, graph_of({n: spec(s, "float32") for n, s in shapes.items()}), CHOICE)
    tensors = [torch.randn(s) for s in shapes.values()]
    (found,) = interpret(kernels_source([emitted]), [(kernel.name, None, [*tensors], {})])
    x, channel, column, turned, scalar = tensors
    torch.testing.assert_close(found[-1], x + channel[:, None] + column + turned.T + scalar)


CASTS = [("float32", "bool"), ("float32", "int32"), ("float32", "float16"), ("bool", "float32"), ("int64", "float32")]
CASTS += [("bool", "int64"), ("int32", "bool"), ("float16", "float32"), ("int64", "int32")]


def test_casts(interpret: Callable[..., list[list[Any]]]) -> None:
    values = torch.tensor([0.0, 1.0, -1.0, 2.7, -2.7, 1e-3, 65000.0, 3.14159])
    emitted, calls = [], []
    for source, target in CASTS:
        load = Load("x", "x", source, (1,), FULL)
        store = Store("y", "y_out", spec((8,), target), FULL)
        body = (Op("y", "cast", ("x",), target, FULL),)
        kernel = FusedKernel(f"cast_{source}_{target}", (8,), 0, (load,), body, (store,), ())
        emitted.append(emit_fused(kernel, graph_of({"x": spec((8,), source)}), CHOICE))
        calls.append((kernel.name, None, [values.to(getattr(torch, source))], {}))
    for (_, target), (x, found) in zip(CASTS, interpret(kernels_source(emitted), calls), strict=True):
        assert torch.equal(found, x.to(getattr(torch, target)))


INTEGER_FUNCTIONS = ["add", "sub", "mul", "neg", "abs", "sign", "maximum", "minimum", "lt", "eq"]


def test_functions_of_integers_are_exact(interpret: Callable[..., list[list[Any]]]) -> None:
    a, b = torch.arange(-8, 8) * (2**40 + 1), torch.arange(16).flip(0) - 5
    emitted, calls = [], []
    for fn in INTEGER_FUNCTIONS:
        names = "ab"[: ARITY[fn]]
        loads = tuple(Load(n, n, "int64", (1,), FULL) for n in names)
        result = "bool" if fn in COMPARISONS else "int64"
        store = Store("y", "y_out", spec((16,), result), FULL)
        body = (Op("y", fn, tuple(names), result, FULL),)
        kernel = FusedKernel(f"k_{fn}", (16,), 0, loads, body, (store,), ())
        emitted.append(emit_fused(kernel, graph_of({n: spec((16,), "int64") for n in "ab"}), CHOICE))
        calls.append((kernel.name, None, [a, b][: ARITY[fn]], {}))
    for fn, found in zip(INTEGER_FUNCTIONS, interpret(kernels_source(emitted), calls), strict=True):
        assert torch.equal(found[-1], getattr(torch, fn)(*(a, b)[: ARITY[fn]]))


def test_every_function_of_the_table_has_its_triton_form() -> None:
    assert {*EXPRESSIONS, "cast"} == set(ARITY)
