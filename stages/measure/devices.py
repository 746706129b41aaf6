"""What the device is: its name, its driver, its cache."""

from __future__ import annotations

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


def last_level_cache_bytes(device: str) -> int:
    """Bytes of the cache that a cold input must not be in."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    units = {"K": 2**10, "M": 2**20}
    found = [int(text[:-1]) * units[text[-1]] for text in (p.read_text().strip() for p in sizes) if text[-1] in units]
    return max(found, default=DEFAULT_CACHE_BYTES)


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
