"""The Triton templates of a problem: fused kernels beside library calls, and matrix products in Triton as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate.ir import FusedKernel, LibraryCall, Plan
from kernelwright.stages.generate.module_source import leading_is_free, module_source, offers
from kernelwright.stages.generate.plan import plan
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.generate.products import join_products
from kernelwright.stages.generate.registry import family
from kernelwright.stages.generate.template import Template
from kernelwright.stages.generate.triton_gemm import SHARED_BYTES, Gemm, Tiles
from kernelwright.stages.generate.triton_launch import (
    LONGEST_BLOCK,
    Emitted,
    emit_fused,
    emit_gemm,
    kernels_source,
    next_power_of_two,
)
from kernelwright.stages.generate.triton_scalar import expressible
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.types import Backend, Scalar

Step = FusedKernel | LibraryCall | Gemm
SHORTEST_CHUNK = 1024
"""Columns of a long row that a program takes at a time, at least: four 16-byte loads a thread of two warps."""
DEFAULT_CHUNK = 4096
"""The chunk to try first of a row that no block covers: long loads, and registers left for several programs."""
ELEMENTS_A_THREAD = 8
"""What the default choice gives a thread to hold: two 16-byte loads of float32."""


@dataclass
class Parameters:
    """Choices by name, and the choice to try first; what has one choice only stays out of the search."""

    space: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    default: dict[str, Scalar] = field(default_factory=dict)
    fixed: dict[str, Scalar] = field(default_factory=dict)

    def add(self, name: str, choices: tuple[Scalar, ...], default: Scalar) -> None:
        """A parameter and its choices."""
        if len(choices) == 1:
            self.fixed[name] = default
        else:
            self.space[name], self.default[name] = choices, default


@family("triton")
def triton_templates(problem: Problem, info: OpInfo, device: str) -> list[Template]:
    """`triton.fused`, and `triton.gemm` where there is a matrix product that it covers."""
    if device != "cuda":
        return []
    graph = prepare(info.graph)
    if not offers(problem, graph):
        return []
    steps = only_expressible(plan(info.graph), graph)
    templates = []
    if steps.kernels:
        templates.append(_template("triton.fused", problem, graph, steps.steps))
    joined = join_products(steps, graph)
    if any(isinstance(step, Gemm) for step in joined):
        templates.append(_template("triton.gemm", problem, graph, joined))
    return templates


def only_expressible(steps: Plan, graph: Graph) -> Plan:
    """The plan with every kernel that Triton cannot express taken apart into library calls."""
    found: list[FusedKernel | LibraryCall] = []
    for step in steps.steps:
        if isinstance(step, FusedKernel) and not expressible(step):
            found += [LibraryCall(node) for node in graph.nodes if node.name in step.covers]
        else:
            found.append(step)
    return Plan(tuple(found))


def _template(name: str, problem: Problem, graph: Graph, steps: tuple[Step, ...]) -> Template:
    parameters = _parameters(steps, graph)
    shown = Plan(tuple(step.step(graph.specs) if isinstance(step, Gemm) else step for step in steps))
    return Template(
        name=name,
        backend=Backend.TRITON,
        summary=_summary(shown),
        space=parameters.space,
        default=parameters.default,
        library_ops=shown.library_ops,
        render=partial(_render, problem, graph, steps, shown, parameters.fixed),
    )


def _summary(steps: Plan) -> str:
    kernels = [f"{kernel.name.removeprefix('fused_').replace('_', ' ')}" for kernel in steps.kernels]
    fused = f"{len(kernels)} Triton kernel{'s' if len(kernels) != 1 else ''} ({'; '.join(kernels)})"
    library = ", ".join(op.removeprefix("aten.").split(".")[0] for op in steps.library_ops)
    return f"{fused}, the library for {library}." if library else f"{fused}, no library call."


def _render(
    problem: Problem,
    graph: Graph,
    steps: tuple[Step, ...],
    shown: Plan,
    fixed: Mapping[str, Scalar],
    choice: Mapping[str, Scalar],
) -> str:
    values = {**fixed, **choice}
    free = leading_is_free(graph, shown)
    emitted: list[Emitted] = []
    for step in steps:
        if isinstance(step, Gemm):
            emitted.append(emit_gemm(step, graph, _tiles(values), int(values["gemm_warps"]), free))
        elif isinstance(step, FusedKernel):
            emitted.append(emit_fused(step, graph, values, free))
    launches = {one.launch.function: one.launch for one in emitted}
    return module_source(problem, graph, shown, launches, kernels_source(emitted), _summary(shown))


def _parameters(steps: tuple[Step, ...], graph: Graph) -> Parameters:
    found = Parameters()
    fused = [step for step in steps if isinstance(step, FusedKernel)]
    gemms = [step for step in steps if isinstance(step, Gemm)]
    if any(not kernel.reduced for kernel in fused):
        found.add("block", (256, 512, 1024, 2048, 4096), 1024)
    lengths = [prod(k.space[len(k.space) - k.reduced :]) for k in fused if k.reduced]
    if lengths:
        _add_rows(found, lengths)
    if fused:
        held = int({**found.fixed, **found.default}.get("columns", 1024))
        warps = max(1, min(16, held // (32 * ELEMENTS_A_THREAD)))
        found.add("num_warps", (1, 2, 4, 8, 16), max(warps, 4) if len(fused) > len(lengths) else warps)
    if gemms:
        _add_gemms(found, gemms, graph)
    return found


def _add_rows(found: Parameters, lengths: list[int]) -> None:
    whole = next_power_of_two(max(lengths))
    longest = min(whole, LONGEST_BLOCK)
    chunks = tuple(c for c in (SHORTEST_CHUNK << i for i in range(5)) if c < longest)
    found.add("columns", (*chunks, longest), longest if whole <= LONGEST_BLOCK else DEFAULT_CHUNK)
    short = next_power_of_two(min(lengths))
    found.add("rows", (1, 2, 4, 8, 16) if short <= LONGEST_BLOCK // 2 else (1,), max(1, min(16, 1024 // short)))
    if whole > SHORTEST_CHUNK:
        found.add("loop_stages", (1, 2, 3), 2)


def _add_gemms(found: Parameters, gemms: list[Gemm], graph: Graph) -> None:
    floats = any(graph.specs[gemm.left.source].dtype == "float32" for gemm in gemms)
    element_bytes = 4 if floats else 2
    # Tensor cores multiply 16-wide tiles; beyond the problem's own sizes a tile would be padding.
    rows = max(16, *(next_power_of_two(gemm.rows) for gemm in gemms))
    cols = max(16, *(next_power_of_two(gemm.cols) for gemm in gemms))
    tiles = [
        Tiles(m, n, k, 8, stages, "tf32x3")
        for m, n, k, stages in product((16, 32, 64, 128), (16, 32, 64, 128, 256), (32, 64), (2, 3, 4))
        if m <= rows and n <= cols and 512 <= m * n <= 128 * 256
    ]
    fitting = [t for t in tiles if t.shared_bytes(element_bytes) <= SHARED_BYTES]
    wanted = 64 * 64 if floats else 128 * 128
    first = min(fitting, key=lambda t: (abs(t.m * t.n - wanted), abs(t.m - t.n), t.k != 32, t.stages != 3))
    found.add("tile", tuple(_tile_name(t) for t in fitting), _tile_name(first))
    found.add("group", (1, 4, 8, 16), 8)
    found.add("gemm_warps", (4, 8), 4 if floats else 8)
    # Plain tf32 keeps 10 bits of the factors: strict float32 rules it out.
    found.add("precision", ("tf32x3", "ieee") if floats else ("ieee",), "tf32x3" if floats else "ieee")


def _tile_name(tiles: Tiles) -> str:
    return f"{tiles.m}x{tiles.n}x{tiles.k}x{tiles.stages}"


def _tiles(values: Mapping[str, Scalar]) -> Tiles:
    m, n, k, stages = (int(v) for v in str(values["tile"]).split("x"))
    return Tiles(m, n, k, int(values["group"]), stages, str(values["precision"]))
