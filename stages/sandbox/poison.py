"""In the runner: fill the memory that the next allocation will get, so that nothing is found there.

A module that returns memory which it did not write, or accumulates into it, meets nan (every byte is 0xFF: a nan in
each floating dtype, -1 in each integer one) in place of an earlier answer or of the zeros of fresh pages.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

BYTE = 0xFF
COPIES = 4
"""Blocks of each size that are filled: a call may allocate its output and some scratch of the same size."""
CPU_LIMIT = 256 * 2**20
CUDA_LIMIT = 4 * 2**30
"""Bytes that are filled at most, so that poisoning costs milliseconds."""


def free_pool(sizes: Collection[int], device: str) -> None:
    """Fill and free blocks of these sizes (bytes); on CUDA also whatever lies free in torch's own pool."""
    limit = CUDA_LIMIT if device == "cuda" else CPU_LIMIT
    free = _inactive_blocks() if device == "cuda" else []
    # What lies free serves as copies: otherwise the pool would grow with every call.
    missing = {size: COPIES - sum(block >= size for block in free) for size in sorted(set(sizes)) if 0 < size <= limit}
    wanted = [*free, *(size for size, copies in missing.items() for _ in range(copies))]
    held, total = [], 0
    for size in wanted:
        total += size
        if total > limit:
            break
        held.append(torch.empty(size, dtype=torch.uint8, device=device).fill_(BYTE))
    del held


def _inactive_blocks() -> list[int]:
    return [
        block["size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
