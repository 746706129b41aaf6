"""Outputs that are a library's result, copied: an own kernel that only moves what the library has computed."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.stages.sandbox import tree

MOST_RESULTS = 32
"""Results of one call that are remembered."""
LEAST_ELEMENTS = 64
"""A smaller result may equal an output by chance."""


class Copies:
    """What library operators computed in one call, by value."""

    def __init__(self) -> None:
        self._results: list[tuple[str, torch.Tensor]] = []
        self._written: set[int] = set()

    def start(self) -> None:
        """Forget the call before."""
        self._results.clear()
        self._written.clear()

    def note(self, name: str, result: Any, *, computed: bool) -> None:
        """A library operator has written `result`; `computed` unless it only moved or filled."""
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta or tensor.numel() == 0:
                continue
            self._written.add(tensor.untyped_storage().data_ptr())
            if computed and tensor.numel() >= LEAST_ELEMENTS and len(self._results) < MOST_RESULTS:
                self._results.append((name, tensor.detach().clone()))

    def of(self, output: Any) -> set[str]:
        """Operators whose result an output holds, in memory that no library operator has written."""
        tensors: list[torch.Tensor] = []
        tree.flatten(output, tensors)
        return {
            name
            for tensor in tensors
            if tensor.numel() and tensor.untyped_storage().data_ptr() not in self._written
            for name, result in self._results
            if result.dtype == tensor.dtype and result.shape == tensor.shape and torch.equal(result, tensor)
        }
