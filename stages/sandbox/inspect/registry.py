"""The kernels that a candidate launched, by name, and the switch that makes one of them do nothing."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

SENTINEL = 0.734375
"""What a kernel that did nothing "returns", and what unwritten memory holds: finite, so that multiplying by zero hides
it as it would hide a true value, exact in every floating dtype, and unlikely as a result."""


@dataclass
class Kernel:
    """One kernel of the candidate's own, as seen being launched."""

    name: str
    backend: str
    """`triton`, `cpp` or `cuda`."""
    launches: int = 0
    """Since the last `reset`; a launch that raised is none."""
    skipped: int = 0
    library_only: bool | None = None
    """Whether it computed nothing but through the library's operators; None where that was not found out."""


class Registry:
    """Each hook sends a kernel's launches through `launch`."""

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.off: str | None = None
        """The kernel that does nothing at present."""

    def register(self, name: str, backend: str) -> Kernel:
        """The kernel of this name, which may not have been launched."""
        return self.kernels.setdefault(name, Kernel(name, backend))

    def launch(self, name: str, backend: str, run: Callable[[], T], skip: Callable[[], T]) -> T:
        """Run the kernel, or `skip` it when it is switched off."""
        kernel = self.register(name, backend)
        if self.off == name:
            kernel.skipped += 1
            return skip()
        result = run()
        kernel.launches += 1
        return result

    def reset(self) -> None:
        """Count launches anew."""
        for kernel in self.kernels.values():
            kernel.launches = kernel.skipped = 0


_INSTALLED = tuple(
    str(Path(folder).resolve())
    for folder in {*sysconfig.get_paths().values(), "/lib", "/lib64", "/usr", "/opt/conda/lib"}
)
_COMPILER_CACHES = ("torchinductor", "/triton/", "__triton_launcher", "cuda_utils")
"""Torch's and Triton's own compilers put what they build there; it is no kernel of the candidate's."""


def is_candidates_library(path: Any) -> bool:
    """Whether a shared library was built for the candidate: it belongs to no installed package and to no compiler."""
    if not isinstance(path, str) or "/" not in path:
        return False
    real = str(Path(path).resolve())
    return not real.startswith(_INSTALLED) and not any(mark in real for mark in _COMPILER_CACHES)
