"""On CUDA: which kernels one call puts on the device, how long each takes, and whether the library launched it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.stages.sandbox.inspect.cuda_hook import base_name

_MOVES = ("Memcpy", "Memset")
_LIBRARY_NAMES = (
    "at::native",
    "at_cuda_detail",
    "cublas",
    "cutlass",
    "cudnn",
    "nvjet",
    "xmma",
    "gemv",
    "splitKreduce",
    "flash_fwd",
    "flash_bwd",
    "fmha",
    "pytorch_flash",
    "cub::",
    "thrust::",
    "triton_poi_",
    "triton_red_",
    "triton_per_",
    "triton_tem_",
    "triton_mm",
    "triton_bmm",
    "vectorized_elementwise",
    "ampere_",
    "sm80_",
    "sm90_",
    "sm100_",
)
"""In the names of kernels of torch, of torch.compile and of NVIDIA's libraries."""


def device_kernels(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Run `call` under torch's profiler: `name`, `microseconds`, `launches` and `library` of each kernel.

    Empty where the profiler sees no device. `library` is whether one of torch's operators launched it, or its name is
    one of a library's.
    """
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    events = profiler.events() or []
    by_operator = {k.name for e in events if e.name.startswith("aten::") for k in getattr(e, "kernels", ())}
    found: dict[str, dict[str, Any]] = {}
    for event in filter(on_device, events):
        one = found.setdefault(event.name, {"name": event.name, "microseconds": 0.0, "launches": 0})
        one["microseconds"] += float(event.time_range.elapsed_us())
        one["launches"] += 1
        one["moves"] = event.name.startswith(_MOVES)
        one["library"] = event.name in by_operator or is_library(event.name)
    return sorted(found.values(), key=lambda one: -one["microseconds"])


def on_device(event: Any) -> bool:
    """Whether one of the profiler's events is work of the device, and no range that somebody named."""
    from torch.autograd import DeviceType  # type: ignore[attr-defined]

    return event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False)


def is_library(name: str) -> bool:
    """Whether a kernel's name is one of torch's or NVIDIA's libraries."""
    return any(mark in name for mark in _LIBRARY_NAMES)


def identifier(name: str) -> str:
    """The identifier that a kernel's source gave it."""
    return base_name(name)
