"""From a step of the plan and a choice of parameters to its kernel and the lines of `forward` that launch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kernelwright.stages.generate.ir import Domain, FusedKernel, Store
from kernelwright.stages.generate.triton_gemm import Gemm, Tiles
from kernelwright.stages.generate.triton_math import helper_source
from kernelwright.stages.generate.triton_pointwise import pointwise_source
from kernelwright.stages.generate.triton_rows import RowKernel
from kernelwright.stages.generate.triton_scalar import helpers_in
from kernelwright.stages.generate.triton_statements import Statements
from kernelwright.stages.translate.graph import TensorSpec
from kernelwright.stages.types import Scalar

LONGEST_BLOCK = 16384
"""Elements that one program holds at most: 16 a thread with 32 warps, so that a handful of values stay in registers."""


@dataclass(frozen=True)
class Launch:
    """One kernel and its use."""

    kernel: str
    """Source of the @triton.jit function, without the helpers that it calls."""
    lines: tuple[str, ...]
    """Lines of `forward`: outputs allocated, kernel launched. Graph values appear under their own names."""


def kernels_source(launches: list[Launch]) -> str:
    """The helpers that the kernels call, then the kernels."""
    body = "\n\n".join(launch.kernel for launch in launches)
    helpers = helper_source(helpers_in(body))
    return f"{helpers}\n\n{body}" if helpers else body


def launch_fused(kernel: FusedKernel, specs: Mapping[str, TensorSpec], choice: Mapping[str, Scalar]) -> Launch:
    """A fused kernel with block sizes from the choice: `block` (pointwise), `columns`, `rows` (rows), `num_warps`."""
    leader = _leader(kernel, specs)
    names = Statements(kernel)
    tensors = [*names.inputs, *names.outputs]
    allocations = [_allocate(store, leader or next(iter(names.inputs), None), specs) for store in kernel.stores]
    options = {"num_warps": choice["num_warps"]}
    if kernel.reduced == 0:
        points = f"{leader}.numel()" if leader else str(prod(kernel.space))
        block = int(choice["block"])
        call = _call(kernel.name, f"(triton.cdiv({points}, {block}),)", [*tensors, points], {"BLOCK": block, **options})
        return Launch(pointwise_source(kernel), (*allocations, call))
    row_kernel = rows_of(kernel, choice)
    columns, rows, block = row_kernel.columns, row_kernel.rows, row_kernel.block
    count = f"{leader}.numel() // {columns}" if leader else str(prod(kernel.space) // columns)
    if row_kernel.chunked:
        options["num_stages"] = choice["num_stages"]
    if rows == 1:
        call = _call(kernel.name, f"({count},)", tensors, {"COLUMNS": columns, "BLOCK": block, **options})
    else:
        constants = {"COLUMNS": columns, "ROWS": rows, "BLOCK": block, **options}
        call = _call(kernel.name, f"(triton.cdiv({count}, {rows}),)", [*tensors, count], constants)
    return Launch(row_kernel.source(), (*allocations, call))


def rows_of(kernel: FusedKernel, choice: Mapping[str, Scalar]) -> RowKernel:
    """The row kernel for a choice: a block covers the row if `columns` allows; short rows go `rows` at a time."""
    length = prod(kernel.space[len(kernel.space) - kernel.reduced :])
    block = min(next_power_of_two(length), int(choice["columns"]))
    rows = min(int(choice["rows"]), LONGEST_BLOCK // block, next_power_of_two(prod(kernel.space) // length))
    return RowKernel(kernel, rows, block)


def launch_gemm(gemm: Gemm, specs: Mapping[str, TensorSpec], tiles: Tiles, num_warps: int) -> Launch:
    """A matrix product with its epilogue."""
    outputs = [store.target for store in gemm.epilogue.stores]
    left = gemm.left.source
    allocations = [_allocate(store, left, specs) for store in gemm.epilogue.stores]
    rows = str(gemm.rows) if gemm.batch > 1 else f"{left}.numel() // {gemm.depth}"
    programs = f"triton.cdiv({rows}, {tiles.m}) * {-(-gemm.cols // tiles.n)}"
    grid = f"({programs}, {gemm.batch})" if gemm.batch > 1 else f"({programs},)"
    constants = {**gemm.constants(tiles), "num_warps": num_warps, "num_stages": tiles.stages}
    return Launch(gemm.source(tiles), (*allocations, _call(gemm.name, grid, [*gemm.inputs, *outputs, rows], constants)))


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def _leader(kernel: FusedKernel, specs: Mapping[str, TensorSpec]) -> str | None:
    """An input that has the whole space as its shape: its sizes at run time are the kernel's."""
    for load in kernel.loads:
        spec = specs.get(load.source)
        if spec is not None and load.domain is Domain.FULL and spec.shape == kernel.space:
            return load.source
    return None


def _allocate(store: Store, leader: str | None, specs: Mapping[str, TensorSpec]) -> str:
    """The output as a new tensor on the leader's device; its leading size follows the leader's where they agree."""
    shape = [str(n) for n in store.spec.shape]
    if leader and store.spec.shape[:1] == specs[leader].shape[:1] != ():
        shape[0] = f"{leader}.shape[0]"
    sizes = ", ".join(shape) + ("," if len(shape) == 1 else "")
    device = f", device={leader}.device" if leader else ""
    return f"{store.target} = torch.empty(({sizes}), dtype=torch.{store.spec.dtype}{device})"


def _call(name: str, grid: str, arguments: list[str], constants: Mapping[str, Scalar]) -> str:
    """The launch on one line, or its arguments on a line of their own where it gets long."""
    values = ", ".join([*arguments, *(f"{key}={value}" for key, value in constants.items())])
    line = f"{name}[{grid}]({values})"
    return line if len(line) <= 104 else f"{name}[{grid}](\n    {values}\n)"
