"""Matrix products with their epilogue, by the interpreter: odd sizes, transposed and batched factors."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Store
from kernelwright.stages.generate.triton_gemm import SHARED_BYTES, Gemm, Matrix, Tiles
from kernelwright.stages.generate.triton_math import helper_source
from kernelwright.stages.generate.triton_scalar import helpers_in
from kernelwright.stages.translate.graph import TensorSpec

TILES = Tiles(m=16, n=32, k=16, group=2, stages=3, precision="tf32x3")


def product_then_tanh(name: str, leading: tuple[int, ...], dtype: str, left: Matrix, right: Matrix, batch: int) -> Gemm:
    """tanh(left @ right + bias) over [*leading, 70], depth 33."""
    space = (*leading, 70)
    contiguous = tuple(prod(space[d + 1 :]) for d in range(len(space)))
    by_column = (*(0 for _ in leading), 1)
    loads = (
        Load("p", "mm", dtype, contiguous, Domain.FULL),
        Load("bias", "bias", dtype, by_column, Domain.FULL),
    )
    body = (
        Op("shifted", "add", ("p", "bias"), "float32", Domain.FULL),
        Op("y", "tanh", ("shifted",), "float32", Domain.FULL),
    )
    store = Store("y", "y_out", TensorSpec(space, dtype, contiguous), Domain.FULL)
    epilogue = FusedKernel(name, space, 0, loads, body, (store,), ())
    return Gemm(left, right, batch, prod(leading) // batch, 70, 33, "mm", epilogue)


def launch(gemm: Gemm, left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor) -> Any:
    out = torch.zeros(gemm.epilogue.space, dtype=left.dtype)
    tiles = -(-gemm.rows // TILES.m) * -(-gemm.cols // TILES.n)
    return (f"{gemm.name}_kernel", (tiles, gemm.batch), [left, right, bias, out, gemm.rows], gemm.constants(TILES))


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Gemm, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Each kernel with its factors, as the graph stores them, and the bias."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for dtype in ("float32", "float16"):

        def draw(*shape: int, dtype: str = dtype) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(getattr(torch, dtype))

        left, right, weight = (
            Matrix("x", dtype, (0, 33, 1)),
            Matrix("w", dtype, (0, 70, 1)),
            Matrix("w", dtype, (0, 1, 33)),
        )
        batches = Matrix("x", dtype, (15 * 33, 33, 1)), Matrix("w", dtype, (33 * 70, 70, 1))
        plain = product_then_tanh(f"plain_{dtype}", (45,), dtype, left, right, 1)
        linear = product_then_tanh(f"linear_{dtype}", (5, 9), dtype, left, weight, 1)
        batched = product_then_tanh(f"batched_{dtype}", (3, 15), dtype, *batches, 3)
        bias = draw(70)
        found[plain.name] = (plain, draw(45, 33), draw(33, 70), bias)
        found[linear.name] = (linear, draw(5, 9, 33), draw(70, 33), bias)
        found[batched.name] = (batched, draw(3, 15, 33), draw(3, 33, 70), bias)
    return found


@pytest.fixture(scope="module")
def results(cases: dict[str, Any], interpret: Callable[..., list[list[Any]]]) -> dict[str, torch.Tensor]:
    body = "\n\n".join(gemm.source(TILES) for gemm, *_ in cases.values())
    found = interpret(helper_source(helpers_in(body)) + "\n\n" + body, [launch(*case) for case in cases.values()])
    return {name: arguments[3] for name, arguments in zip(cases, found, strict=True)}


@pytest.mark.parametrize("name", [f"{k}_{d}" for k in ("plain", "linear", "batched") for d in ("float32", "float16")])
def test_a_product_of_odd_sizes_with_its_epilogue(
    name: str, cases: dict[str, Any], results: dict[str, torch.Tensor]
) -> None:
    _, left, right, bias = cases[name]
    factor = right.mT if name.startswith("linear") else right
    exact = torch.tanh(left.double() @ factor.double() + bias.double())
    bound = 1e-5 if left.dtype == torch.float32 else 2e-3
    assert (results[name].double() - exact).abs().max() < bound


def test_the_predicted_shared_memory_covers_what_the_compiler_asks_for(
    cases: dict[str, Any], compile_for_sm90: Callable[..., dict[str, Any]]
) -> None:
    chosen = {"plain_float32": Tiles(32, 64, 32, 8, 3, "tf32x3"), "plain_float16": Tiles(64, 64, 64, 8, 3, "ieee")}
    sources, launches = [], []
    for name, tiles in chosen.items():
        gemm, left, right, bias = cases[name]
        sources.append(gemm.source(tiles))
        _, grid, arguments, _ = launch(gemm, left, right, bias)
        options = {"num_warps": 4, "num_stages": tiles.stages}
        launches.append((f"{name}_kernel", grid, arguments, gemm.constants(tiles) | options))
    body = "\n\n".join(sources)
    compiled = compile_for_sm90(helper_source(helpers_in(body)) + "\n\n" + body, launches)
    for name, tiles in chosen.items():
        predicted = tiles.shared_bytes(4 if name.endswith("32") else 2)
        assert compiled[f"{name}_kernel"]["shared"] <= predicted <= SHARED_BYTES
