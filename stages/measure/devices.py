"""What the device is: its name, its driver, its cache."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.types import Environment

DEFAULT_CACHE_BYTES = 32 * 2**20


def require(device: str) -> None:
    """Raise EnvironmentFault when there is no such device here."""
    if device == "cuda" and not torch.cuda.is_available():
        raise EnvironmentFault(
            "no CUDA device here: run with --device cpu, "
            "or write a bundle for a GPU machine with `kernelwright jobs export`"
        )


def environment(device: str) -> Environment:
    """Device and versions, to stand beside every verdict and time."""
    try:
        import triton

        triton_version = str(triton.__version__)
    except ImportError:
        triton_version = ""
    return Environment(
        device=device,
        device_name=torch.cuda.get_device_name() if device == "cuda" else _processor(),
        driver=_driver() if device == "cuda" else "",
        torch=str(torch.__version__),
        triton=triton_version,
        python=platform.python_version(),
        threads=torch.get_num_threads(),
    )


def identity(device: str) -> str:
    """What tells this device from others on the machine: `cpu`, or the GPU's UUID, whatever its index is here."""
    if device == "cpu":
        return "cpu"
    return f"cuda-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def last_level_cache_bytes(device: str) -> int:
    """Bytes of the cache that a cold input must not be in: on a CPU all last-level caches of the cores we may use."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    caches: dict[tuple[int, str], int] = {}
    for cpu in os.sched_getaffinity(0):
        for folder in Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            try:
                level = int((folder / "level").read_text())
                caches[level, (folder / "shared_cpu_list").read_text()] = _bytes((folder / "size").read_text())
            except (OSError, ValueError):
                # A virtual machine may show only part of this.
                continue
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last) or DEFAULT_CACHE_BYTES


def _bytes(text: str) -> int:
    """`32768K` in bytes."""
    units = {"K": 2**10, "M": 2**20}
    text = text.strip()
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _driver() -> str:
    text = Path("/proc/driver/nvidia/version")
    if not text.exists():
        return ""
    words = text.read_text().split("\n", 1)[0].split()
    return next((w for w in words if w[0].isdigit() and "." in w), "")
