"""The C++ back end of the generator: fused kernels in one translation unit, called through ctypes on data pointers.

No torch header is included: they cost 25 s of compile time where these kernels take half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import cpp_kernel, cpp_launch, cpp_math, cpp_reduce
from kernelwright.stages.generate.cpp_kernel import Style
from kernelwright.stages.generate.cpp_layout import layout
from kernelwright.stages.generate.ir import FusedKernel, Plan
from kernelwright.stages.generate.module_source import Launch, leading_is_free, module_source, offers
from kernelwright.stages.generate.plan import plan
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.generate.registry import family
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.types import Backend, Scalar

LARGE_OUTPUT = 2**22
"""Bytes above which an output is first written past the cache: whoever reads it next would not find it there anyway."""

PRELUDE = """
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t SMALL = 32768;  // elements below which starting threads costs more than it saves
"""

STREAM = """
// Writes a block past the cache: a normal store would first read the line that it is about to overwrite.
static inline void stream(float* to, const float* from, int count) {
#if defined(__AVX__)
    // As _mm256_stream_ps of immintrin.h, which takes longer to compile than all the rest.
    typedef float Vector __attribute__((vector_size(32)));
    if (reinterpret_cast<uintptr_t>(to) % sizeof(Vector) == 0) {
        for (int i = 0; i < count; i += 8) {
            Vector values;
            std::memcpy(&values, from + i, sizeof values);
            __builtin_ia32_movntps256(to + i, values);
        }
        return;
    }
#endif
    std::memcpy(to, from, count * sizeof(float));
}
"""


@family("cpp")
def cpp_templates(problem: Problem, info: OpInfo, device: str) -> list[Template]:
    """One template, `cpp.fused`, when some part of the graph can be fused on the CPU."""
    graph = prepare(info.graph)
    if device != "cpu" or not offers(problem, graph):
        return []
    steps = plan(graph)
    if not steps.kernels or not all(map(cpp_kernel.supported, steps.kernels)):
        return []
    space = _space(steps)
    return [
        Template(
            name="cpp.fused",
            backend=Backend.CPP,
            summary=_summary(steps),
            space=space,
            default=_default(steps, space),
            library_ops=steps.library_ops,
            render=partial(_render, problem, graph, steps),
        )
    ]


def _space(steps: Plan) -> dict[str, tuple[Scalar, ...]]:
    """The parameters that some kernel of the plan feels."""
    felt: dict[str, Callable[[FusedKernel], bool]] = {
        "stream": cpp_kernel.streams_something,
        "keep": cpp_kernel.keeps_something,
        "prefetch": cpp_kernel.prefetches_something,
    }
    space: dict[str, tuple[Scalar, ...]] = {"lanes": (16, 32, 64), "schedule": ("static", "dynamic")}
    space |= {name: (False, True) for name, feels in felt.items() if any(map(feels, steps.kernels))}
    if any(_is_flat(kernel) for kernel in steps.kernels):
        space["block"] = (4096, 16384, 65536)
    return space


def _is_flat(kernel: FusedKernel) -> bool:
    found = layout(kernel)
    return found is not None and found.flat


def _default(steps: Plan, space: Mapping[str, object]) -> dict[str, Scalar]:
    large = any(4 * s.spec.numel >= LARGE_OUTPUT for kernel in steps.kernels for s in kernel.stores)
    wanted: dict[str, Scalar] = {
        "lanes": 32,
        "schedule": "static",
        "stream": large,
        "keep": True,
        "prefetch": True,
        "block": 16384,
    }
    return {name: wanted[name] for name in space}


def _summary(steps: Plan) -> str:
    kernels = [kernel.name.removeprefix("fused_").replace("_", " ") for kernel in steps.kernels]
    fused = f"{len(kernels)} C++ kernel{'s' if len(kernels) != 1 else ''} ({'; '.join(kernels)})"
    library = ", ".join(op.removeprefix("aten.").split(".")[0] for op in steps.library_ops)
    return f"{fused}, the library for {library}." if library else f"{fused}, no library call."


def _render(problem: Problem, graph: Graph, steps: Plan, choice: Mapping[str, Scalar]) -> str:
    style = Style(
        lanes=int(choice["lanes"]),
        schedule=str(choice["schedule"]),
        stream=bool(choice.get("stream", False)),
        keep=bool(choice.get("keep", True)),
        prefetch=bool(choice.get("prefetch", False)),
        block=int(choice.get("block", 16384)),
    )
    kernels = [cpp_launch.readable(kernel, graph) for kernel in steps.kernels]
    free = leading_is_free(graph, steps)
    leaders = [cpp_launch.leader(kernel, graph) if free else None for kernel in steps.kernels]
    source = cpp_launch.python_source(cpp_source(kernels, style), kernels, leaders)
    launches = {kernel.name: Launch(kernel.name, cpp_kernel.inputs(kernel)) for kernel in steps.kernels}
    return module_source(problem, graph, steps, launches, source, _summary(steps))


def cpp_source(kernels: list[FusedKernel], style: Style) -> str:
    """The translation unit: what the kernels call, and the kernels."""
    functions = "\n\n".join(cpp_kernel.function(kernel, style) for kernel in kernels)
    stream = STREAM.strip() if "stream(" in functions else ""
    called = (cpp_math.definitions(functions), cpp_reduce.helpers(functions), stream)
    return "\n\n".join(part for part in (PRELUDE.strip(), *called, functions) if part)
