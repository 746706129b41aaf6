"""The Triton back end: every kernel that a forward launches is compiled for the GPU's architecture, with no GPU used.

A kernel's signature is known only once it is called. A child process therefore runs the candidate's forward on a
stand-in device (`standin.py`) under a driver that compiles and records in place of launching (`triton_driver.py`). The
kernels stay in the candidate's own Triton cache, where a later process with a device finds them.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.codec import to_json
from kernelwright.stages.compile.base import Built, Task, builds
from kernelwright.stages.compile.children import run_child
from kernelwright.stages.compile.process import python_environment
from kernelwright.stages.compile.target import gpu_capability
from kernelwright.stages.types import Backend


@builds(Backend.TRITON)
def build_triton(task: Task) -> Built:
    """Compile the kernels that the candidate's forward launches on the problem's inputs."""
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentFault(f"{package} is not installed; pip install {package}.")
    request: dict[str, Any] = {"problem": to_json(task.problem), "capability": gpu_capability()}
    environment = python_environment(
        task.scratch,
        TRITON_CACHE_DIR=str(task.home / "triton"),
        CUDA_VISIBLE_DEVICES="",
        KERNELWRIGHT_BUILD=str(task.home),
    )
    return run_child("kernelwright.stages.compile.triton_child", task, request, environment)
