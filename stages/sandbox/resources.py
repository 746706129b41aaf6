"""In the runner: what the kernels that a module has launched need of the device, as Triton's compiler says."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from kernelwright.stages.codec import to_json
from kernelwright.stages.types import KernelResources


def launched(module: ModuleType) -> list[Any]:
    """JSON of one KernelResources for each compiled variant of the module's own Triton kernels."""
    major, minor = torch.cuda.get_device_capability()
    found = {}
    for value in vars(module).values():
        for kernel in _compiled(value):
            needs = KernelResources(
                kernel=str(kernel.metadata.name),
                target=f"sm_{major}{minor}",
                registers=getattr(kernel, "n_regs", None),
                shared_bytes=getattr(kernel.metadata, "shared", None),
                # Triton counts spills in 32-bit registers.
                spill_bytes=None if getattr(kernel, "n_spills", None) is None else 4 * kernel.n_spills,
            )
            found[needs] = to_json(needs)
    return list(found.values())


def _compiled(value: Any) -> list[Any]:
    """Compiled kernels behind a name of a module: a jitted function, perhaps inside of an autotuner or heuristics."""
    while value is not None and not hasattr(value, "device_caches"):
        value = getattr(value, "fn", None) if type(value).__module__.startswith("triton.") else None
    if value is None:
        return []
    return [kernel for cache in value.device_caches.values() for kernel in _first_dict(cache).values()]


def _first_dict(cache: Any) -> dict[Any, Any]:
    """A device's cache is a tuple that begins with the kernels, or the kernels themselves in older releases."""
    first = cache[0] if isinstance(cache, tuple | list) else cache
    return first if isinstance(first, dict) else {}
