"""From a step of the plan and a choice of parameters to its kernel and the function that launches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.stages.generate.ir import FusedKernel
from kernelwright.stages.generate.module_source import FITS, Launch, leading_source
from kernelwright.stages.generate.triton_gemm import Gemm, Tiles
from kernelwright.stages.generate.triton_index import INT32_LIMIT, Index, index_of
from kernelwright.stages.generate.triton_math import helper_source
from kernelwright.stages.generate.triton_pointwise import pointwise_source
from kernelwright.stages.generate.triton_rows import RowKernel
from kernelwright.stages.generate.triton_scalar import helpers_in
from kernelwright.stages.generate.triton_statements import Statements, indent
from kernelwright.stages.translate.graph import Graph
from kernelwright.stages.types import Scalar

LONGEST_BLOCK = 16384
"""Elements that one program holds at most: 16 a thread with 32 warps, so that a handful of values fit its registers."""


@dataclass(frozen=True)
class Emitted:
    """One kernel with the function that launches it."""

    kernel: str
    """Source of the @triton.jit function, without the helpers that it calls."""
    function: str
    """Source of the function: inputs in, new outputs out."""
    launch: Launch


def kernels_source(emitted: Sequence[Emitted]) -> str:
    """The module-level text of a candidate: imports, helpers, kernels, functions."""
    kernels = "\n\n".join(one.kernel for one in emitted)
    helpers = helper_source(helpers_in(kernels))
    functions = "\n\n".join(one.function for one in emitted)
    parts = ["import triton\nimport triton.language as tl\n", helpers, kernels, functions, FITS.strip() + "\n"]
    return "\n\n".join(part for part in parts if part)


def emit_fused(kernel: FusedKernel, graph: Graph, choice: Mapping[str, Scalar], free: bool = False) -> Emitted:
    """A fused kernel. `free`: the first dimension may have another size at run time.

    The choice has `block` for pointwise kernels, `columns` and `rows` for row kernels, `num_warps`, and `loop_stages`
    for the loops over a row that is longer than `columns`.
    """
    return _emit_rows(kernel, graph, choice, free) if kernel.reduced else _emit_points(kernel, graph, choice, free)


def _emit_points(kernel: FusedKernel, graph: Graph, choice: Mapping[str, Scalar], free: bool) -> Emitted:
    leader = leading_source(graph, kernel)
    points = _times(leader, kernel.space)
    block, index = int(choice["block"]), index_of(kernel, free)
    constants: dict[str, Scalar] = {"WIDE": f"{points} >= {INT32_LIMIT}"} if index is Index.BY_SIZE else {}
    constants |= {"BLOCK": block, "num_warps": choice["num_warps"]}
    grid = f"triton.cdiv({points}, {block})"
    inputs = Statements(kernel).inputs
    why = _share(block, constants["num_warps"], "points")
    function = _function(kernel, inputs, leader, grid, [points], constants, why)
    return Emitted(pointwise_source(kernel, index), function, Launch(kernel.name, inputs))


def _emit_rows(kernel: FusedKernel, graph: Graph, choice: Mapping[str, Scalar], free: bool) -> Emitted:
    leader = leading_source(graph, kernel) if len(kernel.space) > kernel.reduced else None
    count = _times(leader, kernel.space[: len(kernel.space) - kernel.reduced])
    # One multiplication a row in 64 bits costs nothing that could be measured: no need to choose at launch.
    row = row_kernel(kernel, choice, index_of(kernel, free) is not Index.INT32)
    constants: dict[str, Scalar] = {"COLUMNS": row.columns, "BLOCK": row.block, "num_warps": choice["num_warps"]}
    if row.chunked:
        constants = {"STAGES": choice["loop_stages"], **constants}
    grid, sizes = count, []
    if row.rows > 1:
        constants = {"ROWS": row.rows, **constants}
        grid, sizes = f"triton.cdiv({count}, {row.rows})", [count]
    inputs = Statements(kernel).inputs
    why = _share(row.rows * row.block, constants["num_warps"], "elements")
    if row.chunked:
        why += f" All {row.columns} columns at once would crowd the registers."
    function = _function(kernel, inputs, leader, grid, sizes, constants, why)
    return Emitted(row.source(), function, Launch(kernel.name, inputs))


def row_kernel(kernel: FusedKernel, choice: Mapping[str, Scalar], wide: bool) -> RowKernel:
    """The row kernel for a choice: a block covers the row if `columns` allows; short rows go `rows` at a time."""
    split = len(kernel.space) - kernel.reduced
    block = min(next_power_of_two(prod(kernel.space[split:])), int(choice["columns"]))
    rows = min(int(choice["rows"]), LONGEST_BLOCK // block, next_power_of_two(prod(kernel.space[:split])))
    return RowKernel(kernel, rows, block, wide)


def emit_gemm(gemm: Gemm, graph: Graph, tiles: Tiles, num_warps: int, free: bool = False) -> Emitted:
    """A matrix product with its epilogue. `free`: the first dimension may have another size at run time."""
    step = gemm.step(graph.specs)
    leader = leading_source(graph, step)
    rows = str(gemm.rows) if gemm.batch > 1 else _times(leader, step.space[:-1])
    grid = f"triton.cdiv({rows}, {tiles.m}) * {-(-gemm.cols // tiles.n)}"
    if gemm.batch > 1:
        grid = f"{grid}, {gemm.batch}"
    constants = {**gemm.constants(tiles), "num_warps": num_warps, "num_stages": tiles.stages}
    element_bytes = 4 if graph.specs[gemm.left.source].dtype == "float32" else 2
    why = _share(tiles.m * tiles.n, num_warps, "sums")
    shared = tiles.shared_bytes(element_bytes) // 1024
    why += f" {tiles.stages} stages of tiles take {shared} KiB of shared memory at most."
    function = _function(step, gemm.inputs, leader, grid, [rows], constants, why)
    return Emitted(gemm.source(tiles, wide=free or gemm.passes_int32), function, Launch(gemm.name, gemm.inputs))


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def _times(leader: str | None, sizes: Sequence[int]) -> str:
    """The product of the sizes, the first of them read from the leader at run time."""
    if leader is None or not sizes:
        return str(prod(sizes))
    rest = prod(sizes[1:])
    return f"{leader}.shape[0]" + (f" * {rest}" if rest != 1 else "")


def _share(elements: int, num_warps: Scalar, what: str) -> str:
    """What the block size means for a thread."""
    return f"{elements} {what} over {num_warps} warps: {elements / (32 * int(num_warps)):g} a thread."


def _function(
    kernel: FusedKernel,
    inputs: Sequence[str],
    leader: str | None,
    grid: str,
    sizes: Sequence[str],
    constants: Mapping[str, Scalar],
    why: str,
) -> str:
    """Allocate the outputs and launch; `sizes` are the kernel's run-time sizes behind its pointers."""
    outputs = [store.target for store in kernel.stores]
    lines = []
    for store in kernel.stores:
        shape = [str(n) for n in store.spec.shape]
        if leader and store.spec.shape[:1] == kernel.space[:1]:
            shape[0] = f"{leader}.shape[0]"
        text = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
        lines.append(f"{store.target} = torch.empty({text}, dtype=torch.{store.spec.dtype}, device={inputs[0]}.device)")
    lines.append(f"# {why}")
    named = [f"{key}={value}" for key, value in constants.items()]
    opening, values = f"{kernel.name}_kernel[({grid},)](", [*inputs, *outputs, *sizes, *named]
    line = f"{opening}{', '.join(values)})"
    lines += [line] if len(line) <= 112 else [opening, *(f"    {value}," for value in values), ")"]
    lines.append(f"return {', '.join(outputs)}")
    return "\n".join([f"def {kernel.name}({', '.join(inputs)}):", *indent(lines)]) + "\n"
