"""Row kernels, whole and chunked, by the interpreter: numbers, ragged tails, nan, ties and infinities."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce, Store
from kernelwright.stages.generate.triton_math import helper_source
from kernelwright.stages.generate.triton_rows import RowKernel
from kernelwright.stages.generate.triton_scalar import helpers_in
from kernelwright.stages.translate.graph import TensorSpec

ROWS, COLUMNS = 7, 1000
FULL, ROW = Domain.FULL, Domain.ROW
SHAPES = {"float32": [(1, 1024), (4, 1024), (1, 256), (2, 256)], "float16": [(4, 1024), (1, 256)]}
"""(rows a program, block): a whole row and a chunk of it, for one row and for several."""


def row_kernel(name: str, body: list[Op | Reduce], stores: dict[str, str], loads: tuple[Load, ...]) -> FusedKernel:
    """A kernel over [ROWS, COLUMNS]; `stores` maps a local value to the dtype that it is stored in."""
    domains = {line.name: line.domain if isinstance(line, Op) else ROW for line in body}
    written = []
    for value, dtype in stores.items():
        whole = domains[value] is FULL
        shape, stride = ((ROWS, COLUMNS), (COLUMNS, 1)) if whole else ((ROWS,), (1,))
        written.append(Store(value, f"{value}_out", TensorSpec(shape, dtype, stride), domains[value]))
    return FusedKernel(name, (ROWS, COLUMNS), 1, loads, tuple(body), tuple(written), ())


def softmax(name: str, dtype: str) -> FusedKernel:
    body: list[Op | Reduce] = [
        Reduce("top", "max", "x", "float32"),
        Op("centred", "sub", ("x", "top"), "float32", FULL),
        Op("power", "exp", ("centred",), "float32", FULL),
        Reduce("total", "sum", "power", "float32"),
        Op("share", "div", ("power", "total"), "float32", FULL),
    ]
    return row_kernel(name, body, {"share": dtype}, (Load("x", "x", dtype, (COLUMNS, 1), FULL),))


def layer_norm(name: str, dtype: str) -> FusedKernel:
    loads = (
        Load("x", "x", dtype, (COLUMNS, 1), FULL),
        Load("weight", "weight", dtype, (0, 1), FULL),
        Load("shift", "shift", dtype, (1, 0), ROW),
    )
    body: list[Op | Reduce] = [
        Reduce("total", "sum", "x", "float32"),
        Op("mean", "mul", ("total", 1.0 / COLUMNS), "float32", ROW),
        Op("centred", "sub", ("x", "mean"), "float32", FULL),
        Op("square", "mul", ("centred", "centred"), "float32", FULL),
        Reduce("squares", "sum", "square", "float32"),
        Op("variance", "mul", ("squares", 1.0 / COLUMNS), "float32", ROW),
        Op("padded", "add", ("variance", 1e-5), "float32", ROW),
        Op("scale", "rsqrt", ("padded",), "float32", ROW),
        Op("normal", "mul", ("centred", "scale"), "float32", FULL),
        Op("weighted", "mul", ("normal", "weight"), "float32", FULL),
        Op("y", "add", ("weighted", "shift"), "float32", FULL),
    ]
    return row_kernel(name, body, {"y": dtype}, loads)


def extremes(name: str, dtype: str) -> FusedKernel:
    body: list[Op | Reduce] = [
        Reduce("largest", "max", "x", dtype),
        Reduce("smallest", "min", "x", dtype),
        Reduce("where_largest", "argmax", "x", "int64"),
        Reduce("where_smallest", "argmin", "x", "int64"),
    ]
    stores = {"largest": dtype, "smallest": dtype, "where_largest": "int64", "where_smallest": "int64"}
    loads = (Load("x", "x", dtype, (COLUMNS, 1), FULL),)
    return row_kernel(name, body, stores, loads)


def product(name: str, dtype: str) -> FusedKernel:
    """Over 12 columns only: the interpreter takes 0.1 ms an element for a reduction that it has no shortcut for."""
    loads = (Load("x", "x", dtype, (12, 1), FULL),)
    store = Store("p", "p_out", TensorSpec((ROWS,), dtype, (1,)), ROW)
    return FusedKernel(name, (ROWS, 12), 1, loads, (Reduce("p", "prod", "x", dtype),), (store,), ())


def awkward_rows(dtype: torch.dtype) -> torch.Tensor:
    """Plain rows, then one each with a nan (after a large value), all alike, all -inf, zeros of both signs, an inf."""
    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))
    x[2, 5], x[2, 3] = torch.nan, 9.0
    x[3] = 1.0
    x[4] = -torch.inf
    x[5], x[5, 600] = -0.0, 0.0
    x[6, 999] = torch.inf
    return x.to(dtype)


def inputs(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    plain = torch.randn(ROWS, COLUMNS, generator=generator) * 3
    narrow = torch.rand(ROWS, 12, generator=generator) + 0.5
    weight, shift = torch.randn(COLUMNS, generator=generator), torch.randn(ROWS, generator=generator)
    given = {"plain": plain, "weight": weight, "shift": shift, "narrow": narrow}
    return {"awkward": awkward_rows(dtype), **{k: v.to(dtype) for k, v in given.items()}}


@pytest.fixture(scope="module")
def results(interpret: Callable[..., list[list[Any]]]) -> dict[str, list[torch.Tensor]]:
    """What every kernel wrote, by `kernel_dtype_rows_block`."""
    sources, launches = [], []
    for dtype, shapes in SHAPES.items():
        given = inputs(getattr(torch, dtype))
        for rows, block in shapes:
            suffix = f"{dtype}_{rows}_{block}"
            cases: list[Any] = [
                (softmax(f"softmax_{suffix}", dtype), [given["awkward"]], block),
                (layer_norm(f"layer_norm_{suffix}", dtype), [given["plain"], given["weight"], given["shift"]], block),
                (extremes(f"extremes_{suffix}", dtype), [given["awkward"]], block),
                (product(f"product_{suffix}", dtype), [given["narrow"]], 8 if block < 1024 else 16),
            ]
            for kernel, tensors, width in cases:
                sources.append(RowKernel(kernel, rows, width).source())
                outputs = [torch.zeros(s.spec.shape, dtype=getattr(torch, s.spec.dtype)) for s in kernel.stores]
                constants = {"COLUMNS": kernel.space[1], "BLOCK": width} | ({"ROWS": rows} if rows > 1 else {})
                constants |= {"STAGES": 2} if width < kernel.space[1] else {}
                arguments = [*tensors, *outputs, *([ROWS] if rows > 1 else [])]
                launches.append((f"{kernel.name}_kernel", (-(-ROWS // rows),), arguments, constants))
    body = "\n\n".join(sources)
    found = interpret(helper_source(helpers_in(body)) + "\n\n" + body, launches)
    read = {"layer_norm": 3}
    return {
        name.removesuffix("_kernel"): [a for a in arguments if isinstance(a, torch.Tensor)][
            read.get(name.split("_float")[0], 1) :
        ]
        for (name, *_), arguments in zip(launches, found, strict=True)
    }


every_form = pytest.mark.parametrize(
    ("dtype", "form"), [(d, f"{d}_{r}_{b}") for d, shapes in SHAPES.items() for r, b in shapes]
)


def close(found: torch.Tensor, exact: torch.Tensor) -> bool:
    relative = {torch.float32: 2e-6, torch.float16: 1e-3}[found.dtype]
    return torch.allclose(found.double(), exact, rtol=relative, atol=relative, equal_nan=True)


@every_form
def test_softmax(dtype: str, form: str, results: dict[str, list[torch.Tensor]]) -> None:
    x = awkward_rows(getattr(torch, dtype))
    assert close(results[f"softmax_{form}"][0], x.double().softmax(-1))


@every_form
def test_layer_norm_with_weights_by_column_and_by_row(
    dtype: str, form: str, results: dict[str, list[torch.Tensor]]
) -> None:
    given = {k: v.double() for k, v in inputs(getattr(torch, dtype)).items()}
    exact = torch.nn.functional.layer_norm(given["plain"], (COLUMNS,), given["weight"]) + given["shift"][:, None]
    assert close(results[f"layer_norm_{form}"][0], exact)


@every_form
def test_extremes_keep_nan_and_take_the_first_of_ties(
    dtype: str, form: str, results: dict[str, list[torch.Tensor]]
) -> None:
    x = awkward_rows(getattr(torch, dtype))
    exact = [x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1)]
    for found, expected in zip(results[f"extremes_{form}"], exact, strict=True):
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found[~found.isnan()], expected[~expected.isnan()])


@every_form
def test_product(dtype: str, form: str, results: dict[str, list[torch.Tensor]]) -> None:
    assert close(results[f"product_{form}"][0], inputs(getattr(torch, dtype))["narrow"].double().prod(-1))


def test_a_block_that_fits_the_row_needs_no_mask() -> None:
    loads = (Load("x", "x", "float32", (512, 1), FULL),)
    store = Store("s", "s_out", TensorSpec((4,), "float32", (1,)), ROW)
    kernel = FusedKernel("total", (4, 512), 1, loads, (Reduce("s", "sum", "x", "float32"),), (store,), ())
    assert "mask" not in RowKernel(kernel, 1, 512).source()
    assert "mask" not in RowKernel(kernel, 1, 128).source()


def test_dependent_reductions_take_one_pass_each_and_independent_ones_share_it() -> None:
    assert RowKernel(layer_norm("k", "float32"), 1, 256).source().count("for start") == 3
    assert RowKernel(extremes("k", "float32"), 1, 256).source().count("for start") == 1


def test_softmax_takes_its_sum_in_the_pass_of_its_maximum() -> None:
    source = RowKernel(softmax("k", "float32"), 1, 256).source()
    assert source.count("for start") == 2
    assert "_exp_below" in source
