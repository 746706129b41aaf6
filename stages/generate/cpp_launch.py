"""The Python side of the C++ kernels: load the library, allocate outputs, call by data pointer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.stages.generate import cpp_kernel
from kernelwright.stages.generate.cpp_layout import layout
from kernelwright.stages.generate.ir import FusedKernel, Op, Store
from kernelwright.stages.generate.module_source import fits, leading_source
from kernelwright.stages.translate.functional import value_names
from kernelwright.stages.translate.graph import Graph

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

IMPORTS = ("ctypes", "hashlib", "os", "subprocess")

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


_LIBRARY = _library()
'''

WIDTH = 100


def python_source(source: str, kernels: Sequence[FusedKernel], leaders: Sequence[str | None]) -> str:
    """Imports, the C++ source, its loader, and a function for each kernel.

    `leaders` has, for each kernel, the input whose first size is the rows' first size at run time, or None.
    """
    flags = "\n".join(f'    "{flag}",' for flag in FLAGS)
    return "\n\n".join(
        [
            "\n".join([*(f"import {name}" for name in IMPORTS), "from pathlib import Path"]),
            f'CPP_FLAGS = [\n{flags}\n]\nCPP_SOURCE = r"""\n{source}\n"""\n',
            LOADER.strip(),
            "\n\n\n".join(_function(kernel, leader) for kernel, leader in zip(kernels, leaders, strict=True)) + "\n",
            # Pointers of another device's memory would be read as the CPU's.
            fits(" and tensor.is_cpu").strip(),
        ]
    )


def readable(kernel: FusedKernel, graph: Graph) -> FusedKernel:
    """The kernel with its tensors called as in the module: a parameter by its path, not by the tracer's name."""
    taken = {*IMPORTS, "Path", kernel.name}
    names = {value: name if name.isidentifier() else value for value, name in value_names(graph, taken=taken).items()}
    local = {load.name: f"in_{names[load.source]}" for load in kernel.loads}
    return replace(
        kernel,
        loads=tuple(replace(load, name=local[load.name], source=names[load.source]) for load in kernel.loads),
        body=tuple(
            replace(line, args=tuple(local.get(a, a) if isinstance(a, str) else a for a in line.args))
            if isinstance(line, Op)
            else replace(line, arg=local.get(line.arg, line.arg))
            for line in kernel.body
        ),
        stores=tuple(replace(s, target=names[s.target], value=local.get(s.value, s.value)) for s in kernel.stores),
    )


def leader(kernel: FusedKernel, graph: Graph) -> str | None:
    """The graph value that `leading_source` finds, by the name that `readable` gives it."""
    source = leading_source(graph, kernel)
    place = next((i for i, load in enumerate(kernel.loads) if load.source == source), None)
    return None if place is None else readable(kernel, graph).loads[place].source


def _function(kernel: FusedKernel, leader: str | None) -> str:
    """The function that allocates the outputs and calls the kernel."""
    inputs, outputs = cpp_kernel.inputs(kernel), [store.target for store in kernel.stores]
    pointers = [f"{name}.data_ptr()" for name in (*inputs, *outputs)]
    return "\n".join(
        [
            f"_LIBRARY.{kernel.name}.argtypes = [ctypes.c_int64] + [ctypes.c_void_p] * {len(pointers)}",
            "",
            "",
            f"def {kernel.name}({', '.join(inputs)}):",
            f'    """Run the kernel; its result is new: {", ".join(outputs)}."""',
            *(f"    {s.target} = torch.empty({_shape(s, leader)}, dtype=torch.{s.spec.dtype})" for s in kernel.stores),
            *_call(f"    _LIBRARY.{kernel.name}(", [_count(kernel, leader), *pointers]),
            f"    return {', '.join(outputs)}",
        ]
    )


def _call(opening: str, arguments: list[str]) -> list[str]:
    line = f"{opening}{', '.join(arguments)})"
    return [line] if len(line) <= WIDTH else [opening, *(f"        {a}," for a in arguments), "    )"]


def _count(kernel: FusedKernel, leader: str | None) -> str:
    found = layout(kernel)
    assert found is not None
    count = found.rows * (found.length if found.flat else 1)
    if leader is None:
        return str(count)
    rest = count // kernel.space[0]
    return f"{leader}.shape[0]" + (f" * {rest}" if rest != 1 else "")


def _shape(store: Store, leader: str | None) -> str:
    sizes = [str(n) for n in store.spec.shape]
    if leader is not None and sizes:
        sizes[0] = f"{leader}.shape[0]"
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
