"""How many warps a multiprocessor can hold of a kernel, from what the compiler says of it."""

from __future__ import annotations

import re

from kernelwright.stages.profile.report import KernelCode

REGISTERS = 65536
"""32-bit registers of a multiprocessor, from compute capability 7.0 on."""
GRAIN = 256
"""Registers that a warp takes come in multiples of this."""
RESERVED_SHARED = 1024
"""Bytes of shared memory that each block costs beside its own, from compute capability 8.0 on."""
_WARPS_AND_SHARED_KIB = {
    70: (64, 96), 75: (32, 64), 80: (64, 164), 86: (48, 100), 87: (48, 164), 89: (48, 100), 90: (64, 228),
    100: (64, 228), 103: (64, 228), 120: (48, 100), 121: (48, 100),
}  # fmt: skip
"""By compute capability times ten: resident warps, and KiB of shared memory, of a multiprocessor (CUDA C++ Programming
Guide, table of technical specifications)."""


def percent(code: KernelCode) -> float | None:
    """Resident warps as a share of the most, 0 to 100; None for what is no GPU kernel, or of an unknown architecture.

    Where the block's size is not known, registers alone decide.
    """
    target = re.match(r"sm_(\d+)", code.target)
    known = _WARPS_AND_SHARED_KIB.get(int(target[1])) if target else None
    if known is None or not code.registers:
        return None
    most, shared_kib = known
    warps = min(most, REGISTERS // (-(-code.registers * 32 // GRAIN) * GRAIN))
    if code.threads:
        own = max(1, -(-code.threads // 32))
        blocks = warps // own
        if code.shared_bytes:
            blocks = min(blocks, shared_kib * 1024 // (code.shared_bytes + RESERVED_SHARED))
        warps = blocks * own
    return 100.0 * warps / most
