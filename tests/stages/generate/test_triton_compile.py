"""Emitted kernels compile for sm_90 with no GPU: in float32, and in bfloat16, which the interpreter gets wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce, Store
from kernelwright.stages.generate.triton_index import Index
from kernelwright.stages.generate.triton_math import HELPERS, helper_source
from kernelwright.stages.generate.triton_pointwise import pointwise_source
from kernelwright.stages.generate.triton_rows import RowKernel
from kernelwright.stages.generate.triton_scalar import EXPRESSIONS, helpers_in
from kernelwright.stages.translate.graph import TensorSpec

FULL, ROW = Domain.FULL, Domain.ROW
FORMS = {"float32": (1, 1024), "bfloat16": (4, 256)}
"""(rows a program, block): whole rows of 1000 columns, and chunks of several."""


def every_float_function(name: str, dtype: str) -> FusedKernel:
    """The sum of all scalar functions of two operands, in one kernel: one compilation checks them all."""
    loads = tuple(Load(n, n, dtype, (1,), FULL) for n in "ab")
    body: list[Op] = [Op("total0", "add", ("a", "b"), dtype, FULL)]
    for fn, text in EXPRESSIONS.items():
        if fn.startswith("logical") or fn in ("where", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"):
            continue
        operands = ("a", "b") if "{1}" in text else ("a",)
        body.append(Op(f"v_{fn}", fn, operands, dtype, FULL))
        body.append(Op(f"total{len(body)}", "add", (body[-2].name, f"v_{fn}"), dtype, FULL))
    store = Store(body[-1].name, "out", TensorSpec((4096,), dtype, (1,)), FULL)
    return FusedKernel(name, (4096,), 0, loads, tuple(body), (store,), ())


def every_reduction(name: str, dtype: str) -> FusedKernel:
    loads = (Load("x", "x", dtype, (1000, 1), FULL),)
    kinds = {"sum": dtype, "prod": dtype, "max": dtype, "min": dtype, "argmax": "int64", "argmin": "int64"}
    body: list[Op | Reduce] = [Reduce(f"r_{fn}", fn, "x", result) for fn, result in kinds.items()]
    stores = [Store(f"r_{fn}", f"{fn}_out", TensorSpec((64,), result, (1,)), ROW) for fn, result in kinds.items()]
    body.append(Op("y", "sub", ("x", "r_max"), dtype, FULL))
    stores.append(Store("y", "y_out", TensorSpec((64, 1000), dtype, (1000, 1)), FULL))
    return FusedKernel(name, (64, 1000), 1, loads, tuple(body), tuple(stores), ())


def empty(dtype: str) -> torch.Tensor:
    return torch.empty(1, dtype=getattr(torch, dtype))


@pytest.fixture(scope="module")
def compiled(compile_for_sm90: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    sources, launches = [], []
    for dtype in ("float32", "bfloat16"):
        points = every_float_function(f"points_{dtype}", dtype)
        sources.append(pointwise_source(points, Index.INT32))
        launches.append((f"{points.name}_kernel", None, [empty(dtype)] * 3 + [4096], {"BLOCK": 256, "num_warps": 4}))
        rows, block = FORMS[dtype]
        kernel = every_reduction(f"rows_{dtype}", dtype)
        sources.append(RowKernel(kernel, rows, block).source())
        tensors = [empty(dtype), *(empty(store.spec.dtype) for store in kernel.stores)]
        constants = {"COLUMNS": 1000, "BLOCK": block, "num_warps": 4} | ({"ROWS": rows} if rows > 1 else {})
        constants |= {"STAGES": 2} if block < 1000 else {}
        launches.append((f"{kernel.name}_kernel", None, tensors + ([64] if rows > 1 else []), constants))
    body = "\n\n".join(sources)
    return compile_for_sm90(helper_source(helpers_in(body)) + "\n\n" + body, launches)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_function_and_reduction_compiles(dtype: str, compiled: dict[str, Any]) -> None:
    for name in (f"points_{dtype}", f"rows_{dtype}"):
        assert ".target sm_90" in compiled[f"{name}_kernel"]["ptx"]


def test_division_and_square_root_are_rounded_as_ieee_says(compiled: dict[str, Any]) -> None:
    ptx = compiled["points_float32_kernel"]["ptx"]
    assert "div.rn.f32" in ptx
    assert "sqrt.rn.f32" in ptx
    assert "div.full.f32" not in ptx


def test_a_short_row_is_loaded_in_vectors(compiled: dict[str, Any]) -> None:
    assert "ld.global.v4.b32" in compiled["rows_float32_kernel"]["ptx"]


def test_every_helper_is_reached_by_some_function() -> None:
    reached = helpers_in("\n".join(EXPRESSIONS.values()))
    reductions = {"_max_key", "_row_max", "_row_min", "_first_of_largest", "_exp_below", "_multiply"}
    called = helpers_in("\n".join(HELPERS.values()))
    assert set(HELPERS) <= reached | reductions | called
