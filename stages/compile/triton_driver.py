"""A Triton driver without a device: kernels are compiled in full and recorded where they would be loaded and launched.

Triton asks the active driver for its target, its limits, a loader and a launcher. Answering those in place of a GPU
lets Triton's own path run (binding, specialisation, the autotuner, its checks of shared memory and threads), in 3.6 and
3.8 alike.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.errors import OutOfResources

from kernelwright.stages.compile import ptxas
from kernelwright.stages.compile.target import multiprocessors, shared_limit_bytes
from kernelwright.stages.types import KernelResources

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Most blocks along each axis of a launch."""


class RecordingDriver:
    """Stands where Triton's CUDA driver would. `resources` has each kernel that was compiled, in order."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.target = GPUTarget("cuda", capability, 32)
        self.resources: list[KernelResources] = []
        self.launches: list[str] = []
        """One line a kernel: its name, grid and options, at its first launch."""
        self.kernel = ""
        """Name of the kernel that was compiled or launched last, for messages."""
        self.compiling = False
        """Whether the compiler is at work on it; still true when it raised."""
        self.utils = self
        self._binaries: dict[bytes, KernelResources] = {}

    def install(self) -> None:
        """Make this the active driver of the process, and listen to the compiler."""
        triton.runtime.driver.set_active(self)
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True
        triton.compiler.compile = self._recorded(triton.compiler.compile)

    def _recorded(self, compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(src: Any, *args: Any, **kwargs: Any) -> Any:
            self.kernel, self.compiling = src.name, True
            with contextlib.redirect_stdout(io.StringIO()) as log:
                kernel = compile_kernel(src, *args, **kwargs)
            self.compiling = False
            needs = replace(
                next(iter(ptxas.parse(log.getvalue())), KernelResources(src.name, f"sm_{self.capability}")),
                shared_bytes=kernel.metadata.shared,
            )
            self.resources.append(needs)
            self._binaries[kernel.kernel] = needs
            return kernel

        return recorded

    # What Triton asks of a driver.

    def get_current_target(self) -> GPUTarget:
        """The architecture to compile for."""
        return self.target

    def get_current_device(self) -> int:
        """The one device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Accept the one device."""

    def get_current_stream(self, device: int) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(self.capability, 10)

    def get_active_torch_device(self) -> torch.device:
        """Where candidates put their tensors."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """`torch.cuda`, which the stand-in device answers for."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """A timer that calls once and finds all configurations equal: the autotuner thus compiles every one."""

        def bench(call: Callable[[], Any], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
            call()
            return [1.0 for _ in quantiles]

        return bench

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The limits that Triton checks a kernel against, and what candidates size persistent grids by."""
        return {
            "max_shared_mem": shared_limit_bytes(self.capability),
            "max_num_regs": 65536,
            "multiprocessor_count": multiprocessors(self.capability),
            "warpSize": 32,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        """Module, function, registers, spills, and most threads a block."""
        needs = self._binaries[binary]
        return name, name, needs.registers or 0, needs.spill_bytes or 0, 1024

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """A launcher that notes the first launch, checks the grid as CUDA would, and runs nothing."""
        noted: list[str] = []

        def launch(x: int, y: int, z: int, *_: Any) -> None:
            self.kernel = src.name
            for size, limit in zip((x, y, z), _GRID_LIMITS, strict=True):
                if not 0 <= size <= limit:
                    raise OutOfResources(size, limit, f"grid ({x}, {y}, {z})")
            if not noted:
                options = f"num_warps={metadata.num_warps} num_stages={metadata.num_stages}"
                noted.append(f"{src.name}: grid=({x}, {y}, {z}) {options}")
                self.launches += noted

        self.kernel = src.name
        return launch
