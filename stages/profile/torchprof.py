"""The tier of torch's profiler: which kernels and operators one call runs, how often, and for how long.

`record` works in the candidate's process, `read` where its answer arrives. On the CPU the profiler sees torch's
operators only; a candidate's own native functions are marked as they are called, by the hooks of `sandbox/inspect`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kernelwright.stages.profile.plain import number, words
from kernelwright.stages.profile.report import KernelTime
from kernelwright.stages.sandbox.inspect import cuda_hook, native, own_operators, triton_hook
from kernelwright.stages.sandbox.inspect.profile import is_library, on_device
from kernelwright.stages.sandbox.inspect.registry import Registry
from kernelwright.stages.types import Backend

T = TypeVar("T")

CALLS = 5
"""Calls under the profiler, after one that only warms it up."""
MOST_KERNELS = 40
OWN = "kernelwright own: "
"""Marks the candidate's native functions among the profiler's events."""


class Marks(Registry):
    """Puts each launch of an own kernel into a range of the profiler's."""

    def launch(self, name: str, backend: str, run: Callable[[], T], skip: Callable[[], T]) -> T:
        """Run the kernel inside of a range that bears its name."""
        self.register(name, backend)
        with torch.profiler.record_function(OWN + name):
            return run()


def mark(source: str) -> Marks:
    """Mark what the candidate calls from now on. Call it before the candidate's file is imported."""
    marks = Marks()

    def backend_of(name: str) -> str:
        return Backend.CPP.value

    native.watch(marks, backend_of)
    own_operators.watch(marks, backend_of)
    triton_hook.watch(marks)
    cuda_hook.watch(marks, source)
    return marks


def record(call: Callable[[], Any], device: str, marks: Marks) -> dict[str, Any]:
    """Call a few times under the profiler. The answer holds `kernels` (name, launches, microseconds,
    own) and `milliseconds`, both of one call."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as warm_up:
        call()
        _settle(on_gpu)
    del warm_up
    with profile(activities=activities) as profiler:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        _settle(on_gpu)
        took_ms = (time.perf_counter() - start) * 1e3 / CALLS
    found = _device_kernels(profiler, marks) if on_gpu else _host_functions(profiler)
    found.sort(key=lambda one: -one["microseconds"])
    return {"kernels": found[:MOST_KERNELS], "milliseconds": took_ms}


def _settle(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def _device_kernels(profiler: Any, marks: Marks) -> list[dict[str, Any]]:
    events = profiler.events() or []
    by_operator = {k.name for e in events if e.name.startswith("aten::") for k in getattr(e, "kernels", ())}
    found: dict[str, dict[str, Any]] = {}
    for event in filter(on_device, events):
        one = found.setdefault(event.name, {"name": event.name, "launches": 0.0, "microseconds": 0.0})
        one["launches"] += 1 / CALLS
        one["microseconds"] += float(event.time_range.elapsed_us()) / CALLS
        own = cuda_hook.base_name(event.name) in marks.kernels
        one["own"] = own or not (event.name in by_operator or is_library(event.name))
    return [_shortened(one) for one in found.values()]


def _host_functions(profiler: Any) -> list[dict[str, Any]]:
    return [
        _shortened(
            {
                "name": average.key.removeprefix(OWN),
                "launches": average.count / CALLS,
                "microseconds": float(average.self_cpu_time_total) / CALLS,
                "own": average.key.startswith(OWN),
            }
        )
        for average in profiler.key_averages()
        if average.key.startswith((OWN, "aten::"))
    ]


def _shortened(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"name": words(one["name"])}


def read(answer: dict[str, Any]) -> tuple[tuple[KernelTime, ...], float]:
    """The kernels of an answer, the longest first, and the milliseconds of a call. Raises ValueError for one that is not of this form."""
    found = [
        KernelTime(words(one["name"]), number(one["launches"]), number(one["microseconds"]), own=one["own"] is True)
        for one in answer["kernels"][:MOST_KERNELS]
    ]
    return tuple(sorted(found, key=lambda kernel: -kernel.microseconds)), number(answer["milliseconds"])
