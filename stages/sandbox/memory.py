"""Memory that the referee allocates and a runner maps: tensors cross the boundary without a copy.

On the CPU a segment is an anonymous file (`memfd_create`) that both sides map. On CUDA it is one allocation of its own
made through the driver (never a block of torch's pool, whose neighbours would be exported with it), handed over by CUDA
IPC. The referee is the owner: what a runner does to its mapping is seen in the bytes, nowhere else.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.stages.sandbox import cuda_ipc

ALIGNMENT = 512
"""Bytes. Every tensor starts on such a boundary, as torch's own allocations do, so that vector loads stay aligned."""
GUARD = 512
"""Bytes at least before, between and after tensors. The referee fills them and looks whether they stay as they are."""
GUARD_BYTE = 0xA5


@dataclass(frozen=True)
class Segment:
    """One shared block. `data` is a uint8 tensor over all of it; `handle` and `fd` let another process map it."""

    data: torch.Tensor
    handle: dict[str, Any]
    fd: int | None
    keep: object
    """What must stay alive as long as `data`."""

    def close(self) -> None:
        """Give the block's descriptor or device memory back. Mappings that still exist keep a CPU block alive."""
        if self.fd is not None:
            os.close(self.fd)
        elif isinstance(self.keep, cuda_ipc.Allocation):
            self.keep.free()


def allocate(nbytes: int, device: str) -> Segment:
    """A new block of `nbytes` (zeroed on the CPU, undefined on CUDA) that the caller owns."""
    nbytes = max(nbytes, 1)
    if device == "cuda":
        allocation = cuda_ipc.allocate(nbytes)
        return Segment(
            data=torch.as_tensor(allocation, device="cuda"),
            handle={"device": "cuda", "nbytes": nbytes, "ipc": allocation.ipc_handle().hex()},
            fd=None,
            keep=allocation,
        )
    fd = os.memfd_create("kernelwright", os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    view = mmap.mmap(fd, nbytes)
    return Segment(torch.frombuffer(view, dtype=torch.uint8), {"device": "cpu", "nbytes": nbytes}, fd, view)


def attach(handle: dict[str, Any], fd: int | None) -> Segment:
    """Map a block that another process allocated. Closes `fd`: the mapping needs it no longer."""
    if handle["device"] == "cuda":
        mapping = cuda_ipc.open_handle(bytes.fromhex(handle["ipc"]), handle["nbytes"])
        return Segment(torch.as_tensor(mapping, device="cuda"), handle, None, mapping)
    assert fd is not None
    view = mmap.mmap(fd, handle["nbytes"])
    os.close(fd)
    return Segment(torch.frombuffer(view, dtype=torch.uint8), handle, None, view)


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: which segment, at which byte, with which shape, strides (in elements) and dtype."""

    segment: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def view(self, segments: dict[int, Segment]) -> torch.Tensor:
        """The tensor itself."""
        dtype = getattr(torch, self.dtype)
        nbytes = storage_bytes(self.shape, self.stride, dtype)
        flat = segments[self.segment].data[self.offset : self.offset + nbytes].view(dtype)
        return torch.as_strided(flat, self.shape, self.stride)


def storage_bytes(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes from the first to the last element of a tensor, both included."""
    if 0 in shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * dtype.itemsize


def dense_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major tensor, in elements."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def layout(templates: Sequence[torch.Tensor], segment: int, start: int = 0) -> tuple[list[Place], int]:
    """Places for tensors like these in one segment, with guard bands around each, and the bytes that it needs.

    `start` is where an earlier layout in the same segment ended. A template whose elements overlap (a stride of 0) is
    laid out densely, since each element must be writable.
    """
    places, end = [], start or GUARD
    for tensor in templates:
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        if any(s == 0 and n > 1 for n, s in zip(shape, stride, strict=True)):
            stride = dense_stride(shape)
        # As far from an aligned address as the template is from its storage's start.
        end += int(tensor.storage_offset()) * tensor.element_size() % ALIGNMENT
        places.append(Place(segment, end, shape, stride, str(tensor.dtype).removeprefix("torch.")))
        end += storage_bytes(shape, stride, tensor.dtype) + GUARD
        end = -(-end // ALIGNMENT) * ALIGNMENT
    return places, end


def guards(places: list[Place], segment: Segment) -> list[torch.Tensor]:
    """The bytes of a segment that lie outside of every tensor: views, in order."""
    found, start = [], 0
    for place in sorted(places, key=lambda p: p.offset):
        found.append(segment.data[start : place.offset])
        start = place.offset + storage_bytes(place.shape, place.stride, getattr(torch, place.dtype))
    return [*found, segment.data[start:]]
