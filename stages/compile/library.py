"""Candidates without a kernel of their own: library calls only, so that there is nothing to compile."""

from __future__ import annotations

from kernelwright.stages.compile.base import Built, Task, builds
from kernelwright.stages.types import Backend


@builds(Backend.TORCH)
def build_nothing(task: Task) -> Built:
    """Accept any source that Python can parse, which `compile_candidate` has checked."""
    return Built(ok=True)
