"""The GPU that kernels are compiled for: this machine's, or Hopper where there is none."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

DEFAULT_CAPABILITY = 90
"""Compute capability times ten (sm_90) when this machine has no GPU."""

_SHARED_KIB = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
"""Largest shared memory of one block, in KiB (CUDA C++ Programming Guide, table of compute capabilities)."""

_MULTIPROCESSORS = {70: 80, 75: 72, 80: 108, 86: 84, 87: 16, 89: 142, 90: 132, 100: 148, 103: 148, 120: 188, 121: 48}
"""Streaming multiprocessors of the largest common device: candidates size persistent grids by it."""


@functools.cache
def gpu_capability() -> int:
    """Compute capability times ten of the first GPU, or DEFAULT_CAPABILITY.

    Asks nvidia-smi and not CUDA: a compiling process must not create a context on a device that is being timed.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return DEFAULT_CAPABILITY
    query = [tool, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout
    except subprocess.TimeoutExpired:
        return DEFAULT_CAPABILITY
    found = re.match(r"(\d+)\.(\d)", answer.strip())
    return int(found[1]) * 10 + int(found[2]) if found else DEFAULT_CAPABILITY


def _nearest(capability: int, table: dict[int, int]) -> int:
    """The entry of the newest known capability that is not above this one."""
    known = [c for c in table if c <= capability]
    return table[max(known) if known else min(table)]


def shared_limit_bytes(capability: int) -> int:
    """Shared memory that one block may have, static and dynamic."""
    return _nearest(capability, _SHARED_KIB) * 1024


def multiprocessors(capability: int) -> int:
    """Streaming multiprocessors of a typical device of this capability."""
    return _nearest(capability, _MULTIPROCESSORS)
