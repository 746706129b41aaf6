"""Every scalar function against torch, and the ways in which operands are broadcast, by the interpreter."""

from collections.abc import Callable, Iterator
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
INTEGER_FUNCTIONS = ["add", "sub", "mul", "neg", "abs", "sign", "maximum", "minimum", "lt", "eq"]
CASTS = [("float32", "bool"), ("float32", "int32"), ("float32", "float16"), ("bool", "float32"), ("int64", "float32")]
CASTS += [("bool", "int64"), ("int32", "bool"), ("float16", "float32"), ("int64", "int32")]

Case = tuple[FusedKernel, list[torch.Tensor]]


def spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return TensorSpec(shape, dtype, tuple(torch.empty(shape, device="meta").stride()))


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def pointwise(name: str, tensors: list[torch.Tensor], body: list[Op]) -> Case:
    """A kernel over vectors a, b, c that stores the last line's value."""
    points = len(tensors[0])
    loads = tuple(Load(n, n, dtype_name(t), (1,), FULL) for n, t in zip("abc", tensors, strict=False))
    store = Store(body[-1].name, "out", spec((points,), body[-1].dtype), FULL)
    return FusedKernel(name, (points,), 0, loads, tuple(body), (store,), ()), tensors


def function_case(fn: str, dtype: str) -> Case:
    """fn(a, b, c), as many as it takes; logical functions get a > 0 and b > 0, `where` gets a > 0."""
    names = "abc"[: ARITY[fn]]
    tests = [Op(f"{n}_test", "gt", (n, 0.0), "bool", FULL) for n in names]
    operands = tuple(f"{n}_test" if fn in ON_BOOLEANS or (fn == "where" and n == "a") else n for n in names)
    result = "bool" if fn in BOOLEAN else dtype
    tensors = float_operands(getattr(torch, dtype))[: ARITY[fn]]
    return pointwise(f"{fn}_{dtype}", tensors, [*tests, Op("y", fn, operands, result, FULL)])


def float_operands(dtype: torch.dtype) -> list[torch.Tensor]:
    """Every pair of special values, then random ones."""
    generator = torch.Generator().manual_seed(3)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, torch.inf, -torch.inf, torch.nan, 2.5, -2.5])
    pairs = special.repeat_interleave(11), special.repeat(11), special.repeat(11)
    return [torch.cat([s, torch.randn(POINTS - 121, generator=generator) * 2]).to(dtype) for s in pairs]


def integer_case(fn: str) -> Case:
    tensors = [torch.arange(-8, 8) * (2**40 + 1), torch.arange(16).flip(0) - 5][: ARITY[fn]]
    result = "bool" if fn in COMPARISONS else "int64"
    return pointwise(f"{fn}_int64", tensors, [Op("y", fn, tuple("ab"[: ARITY[fn]]), result, FULL)])


def cast_case(source: str, target: str) -> Case:
    values = torch.tensor([0.0, 1.0, -1.0, 2.7, -2.7, 1e-3, 65000.0, 3.14159]).to(getattr(torch, source))
    return pointwise(f"cast_{source}_{target}", [values], [Op("y", "cast", ("a",), target, FULL)])


def broadcast_case() -> Case:
    """The sum of a whole tensor, one value a channel, one a column, a transposed matrix and a scalar."""
    shape = (3, 5, 7)
    shapes = {"whole": shape, "channel": (5,), "column": (7,), "turned": (7, 5), "scalar": ()}
    strides = [(35, 7, 1), (0, 1, 0), (0, 0, 1), (0, 1, 5), (0, 0, 0)]
    loads = tuple(Load(n, n, "float32", s, FULL) for n, s in zip(shapes, strides, strict=True))
    names = ["whole", "s1", "s2", "s3"]
    sums = tuple(Op(f"s{i + 1}", "add", (names[i], list(shapes)[i + 1]), "float32", FULL) for i in range(4))
    store = Store("s4", "out", spec(shape, "float32"), FULL)
    generator = torch.Generator().manual_seed(4)
    kernel = FusedKernel("broadcast", shape, 0, loads, sums, (store,), ())
    return kernel, [torch.randn(s, generator=generator) for s in shapes.values()]


def cases() -> Iterator[Case]:
    for fn in FUNCTIONS_TRIED:
        yield function_case(fn, "float32")
        yield function_case(fn, "float16")
    yield from map(integer_case, INTEGER_FUNCTIONS)
    yield from (cast_case(*pair) for pair in CASTS)
    yield broadcast_case()


@pytest.fixture(scope="module")
def results(interpret: Callable[..., list[list[Any]]]) -> dict[str, list[torch.Tensor]]:
    """The operands of each case, and what its kernel gave behind them, by the kernel's name."""
    emitted, calls = [], []
    for kernel, tensors in cases():
        sources = [load.source for load in kernel.loads]
        specs = [spec(tuple(t.shape), dtype_name(t)) for t in tensors]
        inputs = (Input(n, InputKind.ARGUMENT, s, index=i) for i, (n, s) in enumerate(zip(sources, specs, strict=True)))
        emitted.append(emit_fused(kernel, Graph(tuple(inputs), (), (), "single"), CHOICE))
        calls.append((kernel.name, None, [*tensors], {}))
    found = interpret(kernels_source(emitted), calls)
    return {name: given for (name, *_), given in zip(calls, found, strict=True)}


def reference(fn: str, *operands: torch.Tensor) -> torch.Tensor:
    if fn in ON_BOOLEANS or fn == "where":
        operands = tuple(t > 0 if fn in ON_BOOLEANS or i == 0 else t for i, t in enumerate(operands))
    result: torch.Tensor = getattr(torch, fn)(*operands)
    return result


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("fn", FUNCTIONS_TRIED)
def test_a_scalar_function_agrees_with_torch(fn: str, dtype: str, results: dict[str, list[torch.Tensor]]) -> None:
    *operands, found = results[f"{fn}_{dtype}"]
    exact = reference(fn, *(t.double() for t in operands)).to(found.dtype)
    if found.dtype == torch.bool:
        assert torch.equal(found, exact)
    else:
        bound = 2e-6 if dtype == "float32" else 1e-3
        torch.testing.assert_close(found, exact, rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.parametrize("fn", INTEGER_FUNCTIONS)
def test_a_function_of_integers_is_exact(fn: str, results: dict[str, list[torch.Tensor]]) -> None:
    *operands, found = results[f"{fn}_int64"]
    assert torch.equal(found, getattr(torch, fn)(*operands))


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_a_cast_is_torchs(source: str, target: str, results: dict[str, list[torch.Tensor]]) -> None:
    x, found = results[f"cast_{source}_{target}"]
    assert torch.equal(found, x.to(getattr(torch, target)))


def test_operands_are_broadcast_over_every_dimension(results: dict[str, list[torch.Tensor]]) -> None:
    whole, channel, column, turned, scalar, found = results["broadcast"]
    torch.testing.assert_close(found, whole + channel[:, None] + column + turned.T + scalar)


def test_every_function_of_the_table_has_its_triton_form() -> None:
    assert {*EXPRESSIONS, "cast"} == set(ARITY)
