"""Whose doing is it? The nearest frame on the stack that belongs to no library, and what lies between."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_CARRIERS = ("/torch/serialization.py", "/torch/_utils_internal.py", "/numpy/lib/", "/torch/hub.py")
"""Parts of libraries that open what they are told to: as good as the caller's own hand."""
_COMPILERS = (
    "/torch/utils/cpp_extension.py", "/torch/_inductor/", "/torch/_dynamo/", "/torch/utils/_triton.py", "/triton/",
    "/torch/utils/_cpp_extension_versioner.py", "/torch/utils/hipify/", "/ctypes/util.py", "/platform.py",
    "/sysconfig.py", "/setuptools/", "/distutils/", "/cuda/", "/cupy/", "/numba/", "/cutlass/", "/tilelang/", "/tvm/",
    "/pybind11/", "/torch/_appdirs.py",
)  # fmt: skip
"""Parts of libraries that start compilers, or ask the system what it has."""


@dataclass(frozen=True)
class Origin:
    """Where something was done."""

    where: str
    """`candidate.py:12`, or what the stack says when no line of the candidate's is on it."""
    is_candidates: bool
    through_library: bool
    """Whether a library that acts by itself lies between."""
    through_compiler: bool
    """Whether one that starts compilers does."""


class Origins:
    """Tells libraries, this package and the rest from each other by their files' names."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        standard = {paths[name] for name in ("stdlib", "platstdlib")}
        packages = {paths[name] for name in ("purelib", "platlib")}
        packages |= {p for p in sys.path if Path(p).name in {"site-packages", "dist-packages", "lib-dynload"}}
        self.library_folders = tuple({name for p in standard | packages for name in (p, os.path.realpath(p))})
        ours = Path(__file__).absolute().parents[2]
        self._ours = tuple(str(p) for o in (ours, *ours.glob("*")) if o.is_dir() for p in {o, o.resolve()})
        self._between = tuple(str(Path(__file__).with_name(name)) for name in ("prebuilt.py", "watch.py"))
        """Ours, but called by others, who are looked for."""
        self._packages = tuple({name for p in packages for name in (p, os.path.realpath(p))})

    def is_library(self, filename: str) -> bool:
        """Whether a file belongs to Python or an installed package, or is code that one of them made up."""
        return filename.startswith("<") or filename.startswith(self.library_folders) or filename.startswith(self._ours)

    def is_own(self, frame: FrameType) -> bool:
        """Whether this very frame is neither a library's nor ours."""
        return not self.is_library(frame.f_code.co_filename)

    def of(self, frame: FrameType | None) -> Origin:
        """Whose doing the present call is."""
        library = compiler = False
        while frame is not None:
            name = frame.f_code.co_filename
            if name in self._between:
                frame = frame.f_back
                continue
            if name.startswith(self._ours):
                return Origin("the call", False, library, compiler)
            if not name.startswith("<") and not name.startswith(self.library_folders):
                where = f"{name.rpartition('/')[2]}:{frame.f_lineno}"
                return Origin(where, True, library, compiler)
            if any(part in name for part in _COMPILERS):
                compiler = library = True
            elif name.startswith(self._packages) and not any(part in name for part in _CARRIERS):
                library = True
            frame = frame.f_back
        # A thread, an exit handler or a callback of the interpreter's: we start none.
        return Origin("a thread of its own", True, library, compiler)
