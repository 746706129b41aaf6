"""Watch CUDA kernels that are launched from Python: by cuda-core, by cuda-bindings, and by torch's NVRTC wrapper."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from kernelwright.stages.sandbox.inspect.registry import Registry

BACKEND = "cuda"


_MARKS = ("cuda.core", "cuda.bindings", "from cuda ")


def watch(registry: Registry, source: str) -> None:
    """Install the hooks. cuda-core is imported only for a candidate whose source names it."""
    if any(mark in source for mark in _MARKS):
        for module_name in ("cuda.core", "cuda.core.experimental"):
            _replace(module_name, "launch", lambda original: _watched_launch(original, registry))
        for name in ("cuLaunchKernel", "cuLaunchKernelEx"):
            _replace("cuda.bindings.driver", name, lambda original: _watched_driver(original, registry))
    from torch.cuda import _utils

    kernel = getattr(_utils, "_CudaKernel", None)
    if kernel is not None:
        kernel.__call__ = _watched_torch(kernel.__call__, registry)


def _replace(module_name: str, name: str, wrap: Callable[[Any], Any]) -> None:
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return
    if hasattr(module, name):
        setattr(module, name, wrap(getattr(module, name)))


def _watched_launch(original: Any, registry: Registry) -> Any:
    """cuda-core's `launch(stream, config, kernel, *arguments)`."""

    @functools.wraps(original)
    def launch(*args: Any, **kwargs: Any) -> Any:
        kernel = kwargs.get("kernel", args[2] if len(args) > 2 else None)
        name = kernel_name(getattr(kernel, "handle", None), "cuKernelGetName")
        return registry.launch(name, BACKEND, functools.partial(original, *args, **kwargs), lambda: None)

    return launch


def _watched_driver(original: Any, registry: Registry) -> Any:
    """`cuLaunchKernel(function, ...)` and `cuLaunchKernelEx(config, function, ...)`, which answer (status,)."""

    @functools.wraps(original)
    def launch(*args: Any, **kwargs: Any) -> Any:
        from cuda.bindings import driver

        function = next((a for a in args[:2] if isinstance(a, driver.CUfunction | driver.CUkernel)), None)
        name = kernel_name(function, "cuFuncGetName")
        skipped = (driver.CUresult.CUDA_SUCCESS,)
        return registry.launch(name, BACKEND, functools.partial(original, *args, **kwargs), lambda: skipped)

    return launch


def _watched_torch(original: Any, registry: Registry) -> Any:
    """`torch.cuda._compile_kernel` gives objects that are called to launch."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = kernel_name(getattr(self.func, "value", None), "cuFuncGetName")
        return registry.launch(name, BACKEND, functools.partial(original, self, *args, **kwargs), lambda: None)

    return call


def kernel_name(handle: Any, getter: str) -> str:
    """What the driver calls the kernel; a word for "some kernel" where it does not say."""
    try:
        from cuda.bindings import driver

        status, name = getattr(driver, getter)(_handle(handle, getter))
    except (ImportError, AttributeError, TypeError, ValueError):
        return "cuda kernel"
    if int(status) != 0 or not name:
        return "cuda kernel"
    return base_name(name.decode() if isinstance(name, bytes) else str(name))


def _handle(handle: Any, getter: str) -> Any:
    from cuda.bindings import driver

    kind = driver.CUkernel if getter == "cuKernelGetName" else driver.CUfunction
    return handle if isinstance(handle, driver.CUkernel | driver.CUfunction) else kind(int(handle))


def base_name(name: str) -> str:
    """The identifier in a kernel's name: `gelu` for `void app::gelu<float>(float*, int)` and for `_Z4geluPfi`."""
    if name.startswith("_Z"):
        return _from_mangled(name) or name
    head, depth = "", 0
    for character in name.replace("(anonymous namespace)::", ""):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            break
        if depth == 0 and character != ">":
            head += character
    return head.split(" ")[-1].rpartition("::")[2] or name


def _from_mangled(name: str) -> str:
    """The last of the nested names that an Itanium-mangled name begins with."""
    rest, found = name[2:].lstrip("N"), ""
    while rest and rest[0].isdigit():
        digits = ""
        while rest and rest[0].isdigit():
            digits, rest = digits + rest[0], rest[1:]
        found, rest = rest[: int(digits)], rest[int(digits) :]
    return found
