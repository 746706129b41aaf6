"""How much memory verifying a problem takes, found from shapes alone, before anything is allocated."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelwright.kernelbench import contract as contracts
from kernelwright.kernelbench.contract import Contract
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.verify.upcast import WIDE

LEAST_CASES = 2
"""Sets of arguments with their answers that are held at the same time at least."""
SLOTS = 3
"""Argument sets in memory that the candidate shares."""
KEPT_OUTPUTS = 2
"""Outputs that the candidate's process keeps."""
GIB = 2**30


@dataclass(frozen=True)
class Needs:
    """Bytes that verification takes at least, in all and by what they are for."""

    bytes: int
    parts: Mapping[str, int]


def predict(contract: Contract, device: str) -> Needs | None:
    """Follow shapes and dtypes through the reference, and add up what verification holds.

    None where the code cannot be followed without values. Raises UsageError for a fault in the user's code.
    """
    try:
        with contracts.without_values(), torch.no_grad():
            model, arguments = contracts.instantiate(contract, device, seed=0)
            meter = _Meter()
            with meter:
                outputs = _tensors(model(*arguments))
    except UsageError:
        raise
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    inputs = _tensors(arguments)
    state = list(model.state_dict().values())
    given, kept, answer = _nbytes(inputs), _nbytes(state), _nbytes(outputs)
    work = max(meter.peak - answer, 0)
    wide = _wide_nbytes(inputs) + _wide_nbytes(state) + _wide_nbytes(outputs)
    widening = _wide_nbytes(outputs) / max(answer, 1)
    parts = {
        "inputs": given * (LEAST_CASES + SLOTS),
        "parameters": kept * (LEAST_CASES + 3),
        "outputs": answer * (LEAST_CASES + 1 + KEPT_OUTPUTS) + work,
        "oracle": wide + _wide_nbytes(outputs) * (LEAST_CASES - 1) + int(work * widening),
    }
    return Needs(sum(parts.values()), parts)


def require(needs: Needs | None, device: str) -> None:
    """Raise EnvironmentFault when the device is too small; the message says how much is needed, and for what."""
    if needs is None:
        return
    total, free = memory(device)
    if needs.bytes > free:
        parts = ", ".join(f"{name} {size / GIB:.3g}" for name, size in needs.parts.items() if size > needs.bytes / 100)
        raise EnvironmentFault(
            f"needs about {needs.bytes / GIB:.3g} GiB on {device} ({parts}); the device has {total / GIB:.3g}, of "
            f"which {free / GIB:.3g} are free: choose a smaller shape"
        )


def memory(device: str) -> tuple[int, int]:
    """(total, free) bytes of the device's memory; of the machine's for `cpu`."""
    if torch.device(device).type == "cuda":
        free, total = torch.cuda.mem_get_info(torch.device(device))
        # What torch's pool holds and does not use is free for us.
        return total, free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":") for line in lines)}
    return sizes["MemTotal"], sizes["MemAvailable"]


def input_bytes(contract: Contract, device: str) -> int | None:
    """Bytes of the arguments, found without allocating them; None when only a real call can tell."""
    try:
        with contracts.without_values():
            arguments = contracts.draw_inputs(contract, device, seed=0)
    except UsageError:
        return None
    return _nbytes(_tensors(arguments))


class _Meter(TorchDispatchMode):
    """Adds up the tensors that operators make and that are still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if all(r.alias_info is None for r in func._schema.returns):
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self._hold(leaf)
        return result

    def _hold(self, made: torch.Tensor) -> None:
        size = _nbytes([made])
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(made, self._let_go, size)

    def _let_go(self, size: int) -> None:
        self.live -= size


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _wide_nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * WIDE.get(t.dtype, t.dtype).itemsize for t in tensors)
