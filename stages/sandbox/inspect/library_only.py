"""Whether a native function computes anything by itself, or only hands its arguments to the library.

Every operator that the library runs inside the function passes the dispatcher. When each finds its inputs exactly as
the last one left them (or as the caller gave them), and the result is what the last one left, then nobody else has
written a byte: the function is the library call that it wraps.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelwright.stages.sandbox.inspect.registry import Kernel

LARGEST_BYTES = 2**30
"""Snapshots hold this much at most; beyond it, nothing is said about the function."""

_ACTIVE: list[LibraryOnly] = []


def active() -> LibraryOnly | None:
    """The innermost native function that is being called."""
    return _ACTIVE[-1] if _ACTIVE else None


class LibraryOnly:
    """Watches one call of a native function; sets its kernel's `library_only` at the end."""

    def __init__(self, kernel: Kernel, arguments: Any) -> None:
        self.kernel = kernel
        self.own = False
        """Whether something was seen that no operator of the library wrote."""
        self.operators = 0
        self.bytes = 0
        self.snapshots: dict[int, torch.Tensor] = {}
        self.arguments = arguments

    def __enter__(self) -> LibraryOnly:
        # One call says enough. Without the dispatcher's mode nothing would be seen.
        if self.kernel.library_only is None and torch._C._len_torch_dispatch_stack():
            _ACTIVE.append(self)
            self._note(self.arguments)
        return self

    def returned(self, result: Any) -> Any:
        """Look at the result, and give it back."""
        if active() is self:
            found = storages((self.arguments, result))
            # A number may have been computed by the function itself.
            opaque = result is not None and not storages(result)
            self.own = self.own or opaque or not all(self._as_left(s) for s in found)
            if self.bytes <= LARGEST_BYTES:
                self.kernel.library_only = not self.own and self.operators > 0
        return result

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if active() is self:
            _ACTIVE.pop()
        self.snapshots.clear()

    def before(self, arguments: Any) -> None:
        """An operator of the library is about to run."""
        self.operators += 1
        self.own = self.own or not all(self._as_left(s) for s in storages(arguments))

    def after(self, arguments: Any, result: Any) -> None:
        """It has run: what it left counts as the library's."""
        self._note((arguments, result))

    def _note(self, value: Any) -> None:
        for storage in storages(value):
            self.bytes += storage.nbytes()
            if self.bytes <= LARGEST_BYTES and not self.own:
                with _disable_current_modes():
                    self.snapshots[storage.data_ptr()] = _bytes(storage).clone()

    def _as_left(self, storage: torch.UntypedStorage) -> bool:
        snapshot = self.snapshots.get(storage.data_ptr())
        with _disable_current_modes():
            return snapshot is not None and torch.equal(snapshot, _bytes(storage))


def storages(value: Any) -> list[torch.UntypedStorage]:
    """The memory of all tensors in nested lists, tuples and dictionaries, each once."""
    found: dict[int, torch.UntypedStorage] = {}
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, torch.Tensor):
            if one.untyped_storage().nbytes():
                found[one.untyped_storage().data_ptr()] = one.untyped_storage()
        elif isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
    return list(found.values())


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage)
