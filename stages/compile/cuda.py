"""The CUDA back end: NVRTC, through cuda-core, compiles the candidate's CUDA_SOURCE to a cubin; no GPU is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from kernelwright.stages.compile.base import Built, Task, builds
from kernelwright.stages.compile.children import run_child
from kernelwright.stages.compile.deferred import NOTE, calls_extension_loader
from kernelwright.stages.compile.literals import NotALiteral, digest, read_flags, read_source
from kernelwright.stages.compile.process import python_environment
from kernelwright.stages.compile.target import gpu_capability
from kernelwright.stages.types import Backend

_ALLOWED = re.compile(
    r"""
      --?use_fast_math
    | --?(ftz|prec-div|prec-sqrt|fmad|extra-device-vectorization|restrict)(=(true|false))?
    | --?maxrregcount=\d+
    | --?std=c\+\+\d\d
    | -D\w+(=.*)?
    """,
    re.VERBOSE,
)
"""Flags that choose how code is generated; none reads or writes a file."""


def refused_flag(flags: Sequence[str]) -> str | None:
    """The first flag that a candidate may not use, or None."""
    return next((flag for flag in flags if not _ALLOWED.fullmatch(flag)), None)


@builds(Backend.CUDA)
def build_cuda(task: Task) -> Built:
    """Build `<digest>.cubin`, where the digest is of CUDA_FLAGS (which may be absent) and CUDA_SOURCE."""
    if calls_extension_loader(task.candidate.source):
        return Built(ok=True, log=NOTE)
    try:
        source = read_source(task.candidate.source, "CUDA_SOURCE")
        flags = read_flags(task.candidate.source, "CUDA_FLAGS", optional=True)
    except NotALiteral as error:
        return Built(ok=False, log=str(error))
    if flag := refused_flag(flags):
        return Built(ok=False, log=f"CUDA_FLAGS: {flag!r} is not allowed: only flags that choose how code is generated")
    request = {
        "source": source,
        "flags": flags,
        "capability": gpu_capability(),
        "cubin": f"{digest(flags, source)}.cubin",
    }
    # NVRTC unpacks its headers once into the user's cache; the child runs no code of the candidate.
    environment = python_environment(task.scratch, HOME=os.environ.get("HOME", str(task.scratch)))
    return run_child("kernelwright.stages.compile.cuda_child", task, request, environment)
