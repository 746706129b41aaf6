"""The C++ back end of the generator: fused kernels in one translation unit, called through ctypes on data pointers.

No torch header is included: they cost 25 s of compile time where these kernels take half a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import cpp_kernel, cpp_math
from kernelwright.stages.generate.cpp_kernel import Style
from kernelwright.stages.generate.ir import Domain, FusedKernel, Plan, Store
from kernelwright.stages.generate.module_source import (
    FITS,
    Launch,
    leading_is_free,
    leading_source,
    module_source,
    offers,
)
from kernelwright.stages.generate.plan import plan
from kernelwright.stages.generate.prepare import prepare
from kernelwright.stages.generate.registry import family
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.types import Backend, Scalar

FLAGS = [
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
]
"""Not -ffast-math: nan, inf and the order of operations stay what the source says."""

PRELUDE = """
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
"""

STREAM = """
// Writes a block past the cache: a normal store would first read the line that it is about to overwrite.
static inline void stream(float* to, const float* from, int count) {
#if defined(__AVX2__)
    if (reinterpret_cast<uintptr_t>(to) % 32 == 0) {
        for (int i = 0; i < count; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
        return;
    }
#endif
    std::memcpy(to, from, count * sizeof(float));
}
"""

LOADER = '''
def _library():
    """Load the kernels, compiled once: the file is named by the hash of the flags and the source."""
    digest = hashlib.sha256("\\n".join([*CPP_FLAGS, CPP_SOURCE]).encode()).hexdigest()[:32]
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kernelwright"
    path = Path(os.environ.get("KERNELWRIGHT_BUILD", default)) / f"{digest}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        built = path.with_suffix(f".{os.getpid()}.tmp")
        command = ["g++", "-shared", "-fPIC", *CPP_FLAGS, "-x", "c++", "-", "-o", str(built)]
        subprocess.run(command, input=CPP_SOURCE.encode(), check=True)
        built.replace(path)
    return ctypes.CDLL(str(path))
'''

IMPORTS = ("ctypes", "hashlib", "os", "subprocess")


@family("cpp")
def cpp_templates(problem: Problem, info: OpInfo, device: str) -> list[Template]:
    """One template, `cpp.fused`, when some part of the graph can be fused on the CPU."""
    graph = prepare(info.graph)
    if device != "cpu" or not offers(problem, graph):
        return []
    steps = plan(info.graph)
    if not steps.kernels or not all(map(cpp_kernel.supported, steps.kernels)):
        return []
    space = _space(steps)
    fused = ", ".join(kernel.name for kernel in steps.kernels)
    stays = f"; {', '.join(steps.library_ops)} stay library calls" if steps.library_ops else ""
    return [
        Template(
            name="cpp.fused",
            backend=Backend.CPP,
            summary=f"C++ kernels {fused}{stays}.",
            space=space,
            default={name: choices[-1] if name == "stream" else choices[0] for name, choices in space.items()},
            library_ops=steps.library_ops,
            render=partial(_render, problem, graph, steps),
        )
    ]


def _space(steps: Plan) -> dict[str, tuple[Scalar, ...]]:
    """The parameters that some kernel of the plan feels."""
    space: dict[str, tuple[Scalar, ...]] = {"lanes": (16, 32, 64), "stream": (False, True)}
    if any(cpp_kernel.keeps_something(kernel) for kernel in steps.kernels):
        space["keep"] = ("buffer", "recompute")
    if any(_geometry(kernel).flat for kernel in steps.kernels):
        space["block"] = (4096, 16384, 65536)
    return space


def _geometry(kernel: FusedKernel) -> cpp_kernel.Geometry:
    found = cpp_kernel.geometry(kernel)
    assert found is not None
    return found


def _render(problem: Problem, graph: Graph, steps: Plan, choice: Mapping[str, Scalar]) -> str:
    style = Style(
        lanes=int(choice["lanes"]),
        stream=bool(choice["stream"]),
        keep=str(choice.get("keep", "recompute")),
        block=int(choice.get("block", 16384)),
    )
    functions = "\n\n".join(cpp_kernel.function(kernel, style) for kernel in steps.kernels)
    helpers = [cpp_math.definitions(functions), STREAM.strip() if "stream(" in functions else ""]
    source = "\n\n".join(part for part in (PRELUDE.strip(), *helpers, functions) if part)
    free = leading_is_free(graph, steps)
    launchers = "\n\n\n".join(_launcher(graph, kernel, free) for kernel in steps.kernels)
    flags = ", ".join(f'"{flag}"' for flag in FLAGS)
    kernels = "\n".join(
        [
            *(f"import {name}" for name in IMPORTS),
            "from pathlib import Path",
            "",
            f"CPP_FLAGS = [{flags}]",
            f'CPP_SOURCE = r"""\n{source}\n"""',
            "",
            LOADER,
            "",
            "_LIBRARY = _library()",
            "",
            FITS,
            "",
            launchers,
        ]
    )
    launches = {kernel.name: _launch(kernel) for kernel in steps.kernels}
    summary = "The reference's forward in fused C++ kernels" + (
        f"; {', '.join(steps.library_ops)} stay library calls." if steps.library_ops else "."
    )
    return module_source(problem, graph, steps, launches, kernels, summary)


def _launch(kernel: FusedKernel) -> Launch:
    return Launch(kernel.name, tuple(load.source for load in kernel.loads))


def _launcher(graph: Graph, kernel: FusedKernel, free: bool) -> str:
    """The Python function that allocates the outputs and calls the kernel."""
    lead = leading_source(graph, kernel) if free else None
    inputs = [load.source for load in kernel.loads]
    outputs = [store.target for store in kernel.stores]
    geometry = _geometry(kernel)
    outer = math.prod(kernel.space) if geometry.flat else math.prod(kernel.space) // geometry.length
    count = str(outer)
    if lead is not None:
        rest = outer // kernel.space[0]
        count = f"{lead}.shape[0]" + (f" * {rest}" if rest != 1 else "")
    lines = [f"def {kernel.name}({', '.join(inputs)}):", f'    """{_docstring(kernel)}"""']
    for store in kernel.stores:
        lines.append(f"    {store.target} = torch.empty({_shape(store, lead)}, dtype=torch.{store.spec.dtype})")
    pointers = ", ".join(f"ctypes.c_void_p({name}.data_ptr())" for name in [*inputs, *outputs])
    lines.append(f"    _LIBRARY.{kernel.name}(ctypes.c_int64({count}), {pointers})")
    lines.append(f"    return {', '.join(outputs)}")
    return "\n".join(lines)


def _shape(store: Store, lead: str | None) -> str:
    sizes = [str(n) for n in store.spec.shape]
    if lead is not None and sizes:
        sizes[0] = f"{lead}.shape[0]"
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _docstring(kernel: FusedKernel) -> str:
    rows = any(store.domain is Domain.ROW for store in kernel.stores)
    what = "a value a row" if rows else "one pass over the tensors"
    return f"{kernel.name.removeprefix('fused_').replace('_', ', ')}: {what}."
