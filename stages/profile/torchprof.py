"""The tier of torch's profiler: which kernels and operators one call runs, how often, and for how long.

`record` works in the candidate's process, `read` where its answer arrives. On the CPU the profiler sees torch's
operators only; a candidate's own native functions are marked as they are called, by the hooks of `sandbox/inspect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from kernelwright.stages.profile.plain import number, words
from kernelwright.stages.profile.report import KernelTime
from kernelwright.stages.sandbox.inspect import cuda_hook, native, own_operators, triton_hook
from kernelwright.stages.sandbox.inspect.profile import is_library, on_device
from kernelwright.stages.sandbox.inspect.registry import Registry
from kernelwright.stages.types import Backend

T = TypeVar("T")

CALLS = 6
"""Calls under the profiler, after one that only warms it up."""
MOST_KERNELS = 40
CALL = "kernelwright call"
"""Marks each call among the profiler's events."""
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
    """Call a few times under the profiler. The answer holds `kernels` (name, launches, microseconds, own) and
    `milliseconds`, both of one call."""
    from torch.profiler import ProfilerActivity, profile, record_function

    on_gpu = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as warm_up:
        call()
        _settle(on_gpu)
    del warm_up
    with profile(activities=activities) as profiler:
        for _ in range(CALLS):
            with record_function(CALL):
                call()
                _settle(on_gpu)
    events = profiler.events() or []
    whole_us = min(float(e.time_range.elapsed_us()) for e in events if e.name == CALL and not on_device(e))
    found = _device_kernels(events, marks) if on_gpu else _host_functions(events, whole_us)
    found.sort(key=lambda one: -one["microseconds"])
    kernels = [one | {"name": words(one["name"])} for one in found[:MOST_KERNELS]]
    return {"kernels": kernels, "milliseconds": whole_us / 1e3}


def _settle(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def _device_kernels(events: Iterable[Any], marks: Marks) -> list[dict[str, Any]]:
    """The mean of all calls: whatever else the host does, the device's times do not change."""
    events = list(events)
    by_operator = {k.name for e in events if e.name.startswith("aten::") for k in getattr(e, "kernels", ())}
    found: dict[str, dict[str, Any]] = {}
    for event in filter(on_device, events):
        one = _counted(found, event.name, 1 / CALLS, float(event.time_range.elapsed_us()) / CALLS)
        own = cuda_hook.base_name(event.name) in marks.kernels
        one["own"] = own or not (event.name in by_operator or is_library(event.name))
    return list(found.values())


def _host_functions(events: Iterable[Any], whole_us: float) -> list[dict[str, Any]]:
    """The fastest call alone: on a CPU others take turns, and a mean would hold their time too."""
    events = list(events)
    fastest = next(e for e in events if e.name == CALL and float(e.time_range.elapsed_us()) == whole_us)
    start, end = fastest.time_range.start, fastest.time_range.end
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.name.startswith((OWN, "aten::")) and start <= event.time_range.start < end:
            name = event.name.removeprefix(OWN)
            _counted(found, name, 1, float(event.self_cpu_time_total))["own"] = event.name.startswith(OWN)
    return list(found.values())


def _counted(found: dict[str, dict[str, Any]], name: str, launches: float, microseconds: float) -> dict[str, Any]:
    one = found.setdefault(name, {"name": name, "launches": 0.0, "microseconds": 0.0})
    one["launches"] += launches
    one["microseconds"] += microseconds
    return one


def read(answer: dict[str, Any]) -> tuple[tuple[KernelTime, ...], float]:
    """The kernels, the longest first, and the milliseconds of a call. Raises ValueError for another form of answer."""
    found = [
        KernelTime(words(one["name"]), number(one["launches"]), number(one["microseconds"]), own=one["own"] is True)
        for one in answer["kernels"][:MOST_KERNELS]
    ]
    return tuple(sorted(found, key=lambda kernel: -kernel.microseconds)), number(answer["milliseconds"])
