"""Device memory shared between processes, straight through the CUDA driver (libcuda by ctypes).

torch can share tensors too, but it exports the whole block of its caching allocator. Driver API:
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from kernelwright.kernelbench.errors import EnvironmentFault

_LAZY_ENABLE_PEER_ACCESS = 1


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise EnvironmentFault(
            f"the CUDA driver library cannot be loaded ({error}): is the NVIDIA driver installed?"
        ) from None


def _check(code: int, call: str) -> None:
    if code != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        if "out of memory" in reason:
            raise torch.cuda.OutOfMemoryError(f"{call}: {reason}")
        raise RuntimeError(f"{call}: {reason} (code {code})")


def _context() -> None:
    """Make torch's primary context current in this thread."""
    torch.cuda.init()
    torch.cuda.current_stream().synchronize()


class Mapping:
    """Bytes on the device that torch can view without a copy (`__cuda_array_interface__`)."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.nbytes = nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}


class Allocation(Mapping):
    """An allocation of our own."""

    def ipc_handle(self) -> bytes:
        """The 64 bytes by which another process maps it."""
        handle = _IpcHandle()
        _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(self.pointer)), "cuIpcGetMemHandle")
        return bytes(ctypes.string_at(ctypes.byref(handle), 64))

    def free(self) -> None:
        """Give the memory back. No tensor over it may be used afterwards."""
        _check(_driver().cuMemFree_v2(ctypes.c_uint64(self.pointer)), "cuMemFree")


def allocate(nbytes: int) -> Allocation:
    """`nbytes` of device memory, not cleared."""
    _context()
    pointer = ctypes.c_uint64()
    _check(_driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)), f"cuMemAlloc of {nbytes} bytes")
    return Allocation(pointer.value, nbytes)


def open_handle(handle: bytes, nbytes: int) -> Mapping:
    """Map another process's allocation."""
    _context()
    driver = _driver()
    raw = _IpcHandle()
    ctypes.memmove(ctypes.byref(raw), handle, 64)
    pointer = ctypes.c_uint64()
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _IpcHandle, ctypes.c_uint]
    _check(driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), raw, _LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle")
    return Mapping(pointer.value, nbytes)
