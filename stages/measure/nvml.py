"""The little of NVML that a measurement logs, through ctypes: a bare GPU machine has no pynvml.

Every question may go unanswered (no driver, a virtual GPU, a container): the answer is None, never an exception.
NVML API reference, https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

CLOCK_SM = 1
TEMPERATURE_GPU = 0
MAX_PROCESSES = 512

THROTTLE_REASONS = {
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clock setting",
}
"""nvmlClocksEventReasons; 0x1, an idle GPU, is none."""


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which nvmlDeviceGetComputeRunningProcesses_v3 fills."""

    _fields_ = (
        ("pid", c_uint),
        ("used_gpu_memory", c_ulonglong),
        ("gpu_instance_id", c_uint),
        ("compute_instance_id", c_uint),
    )


class Gpu:
    """One GPU, by its UUID."""

    def __init__(self, uuid: str) -> None:
        self._library = _library()
        self._handle: c_void_p | None = None
        if self._library is not None:
            handle = c_void_p()
            if self._library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), byref(handle)) == 0:
                self._handle = handle

    def clock_mhz(self) -> int | None:
        """The multiprocessors' present clock."""
        return self._number("nvmlDeviceGetClockInfo", c_uint(), c_uint(CLOCK_SM))

    def temperature_c(self) -> int | None:
        """The chip's temperature."""
        return self._number("nvmlDeviceGetTemperature", c_uint(), c_uint(TEMPERATURE_GPU))

    def power_w(self) -> float | None:
        """What the board draws."""
        milliwatts = self._number("nvmlDeviceGetPowerUsage", c_uint())
        return None if milliwatts is None else milliwatts / 1000

    def throttled(self) -> tuple[str, ...]:
        """Reasons why the clock is lower than it could be, in words."""
        # The name that drivers before 535 know too; later ones keep it.
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong()) or 0
        return tuple(words for bit, words in THROTTLE_REASONS.items() if bits & bit)

    def processes(self) -> tuple[int, ...]:
        """Processes with a compute context."""
        if self._handle is None or self._library is None:
            return ()
        count, found = c_uint(MAX_PROCESSES), (_ProcessInfo * MAX_PROCESSES)()
        ask = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(self._handle, byref(count), found) != 0:
            return ()
        return tuple(int(info.pid) for info in found[: count.value])

    def _number(self, function: str, target: Any, *arguments: Any) -> int | None:
        if self._handle is None or self._library is None:
            return None
        ask = getattr(self._library, function, None)
        if ask is None or ask(self._handle, *arguments, byref(target)) != 0:
            return None
        return int(target.value)


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
