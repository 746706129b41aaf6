"""Which operators one call dispatches, on how much data, and whether an exception was being handled meanwhile."""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.stages.sandbox.inspect import native, own_operators
from kernelwright.stages.sandbox.inspect.copies import Copies
from kernelwright.stages.sandbox.inspect.library_only import active
from kernelwright.stages.sandbox.inspect.registry import Registry

ALLOCATES = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "empty_quantized",
        "_empty_affine_quantized",
    }
)
FREE = ALLOCATES | frozenset(
    {
        "cat",
        "stack",
        "flip",
        "roll",
        "repeat",
        "resize_",
        "resize_as_",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "zero_",
        "fill_",
        "arange",
        "scalar_tensor",
        "eye",
        "lift_fresh",
        "lift_fresh_copy",
        "detach",
        "_local_scalar_dense",
        "item",
        "set_",
        "record_stream",
        "is_same_size",
        "_unsafe_view",
        "_reshape_alias",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "_version",
        "_to_copy",
        "copy_",
        "clone",
        "_pin_memory",
        "is_pinned",
    }
)
"""Operators that compute nothing: they allocate, look, or move bytes."""


class OperatorWatch(TorchDispatchMode):
    """Counts what computes; fills memory that nobody has written; lets own operators be switched off."""

    def __init__(self, registry: Registry, backend_of: Callable[[str], str], file: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.registry = registry
        self.backend_of = backend_of
        self.file = str(file)
        self.handlers = handler_lines(file.read_text())
        self.copies = Copies()
        self.start()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under a mode anyway, and asking for it imports the compiler: seconds."""
        return False

    def start(self) -> None:
        """Count anew."""
        self.counts: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()
        """The largest tensor that each operator read or wrote."""
        self.handled: dict[int, Counter[str]] = {}
        """By the candidate's line: operators that computed while an exception was being handled there."""
        self.outer = sys.exc_info()[1]
        self.copies.start()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        run = functools.partial(func, *args, **kwargs)
        name = func._schema.name.partition("::")[2] if hasattr(func, "_schema") else str(func)
        if not own_operators.is_library(getattr(func, "namespace", "")):
            return self._own(func, args, kwargs)
        within = active()
        if within:
            within.before((args, kwargs))
        result = run()
        if name in ALLOCATES and isinstance(result, torch.Tensor) and not result.is_meta:
            result.fill_(native.sentinel(result.dtype))
        if within:
            within.after((args, kwargs), result)
        moves = getattr(func, "is_view", False)
        if name not in ALLOCATES and not moves:
            self.copies.note(str(func), result, computed=name not in FREE)
        if name not in FREE and not moves:
            self._count(str(func), (args, kwargs, result))
        return result

    def _own(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator of the candidate's own: called directly, so that the mode can be on and see what it runs."""
        name = own_operators.name_of(func._schema.name)
        kernel = own_operators.direct(func, args, kwargs)
        with self:
            if name in self.registry.running or own_operators.python_function(func._schema.name):
                return kernel(*args, **kwargs)
            return native.launch(self.registry, name, self.backend_of(name), kernel, args, kwargs)

    def _count(self, name: str, values: Any) -> None:
        self.counts[name] += 1
        self.elements[name] = max(self.elements[name], _largest(values))
        # What is being handled is known to every function that the handler calls, through C++ and back.
        if sys.exc_info()[1] is not self.outer:
            line = _handling_line(self.file, self.handlers, sys._getframe(2))
            if line is not None:
                self.handled.setdefault(line, Counter())[name] += 1


def _largest(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, dict):
        value = list(value.values())
    return max((_largest(v) for v in value), default=0) if isinstance(value, list | tuple) else 0


def handler_lines(source: str) -> dict[int, int]:
    """Each line inside of an `except` block, mapped to the line where the block starts."""
    handlers = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)]
    return {n: h.lineno for h in handlers for n in range(h.lineno, (h.end_lineno or h.lineno) + 1)}


def _handling_line(file: str, handlers: Mapping[int, int], frame: FrameType | None) -> int | None:
    """The candidate's line that handles an exception: its `except`, else where it is; 0 in text that was executed."""
    nearest: int | None = None
    while frame is not None:
        name, line = frame.f_code.co_filename, frame.f_lineno
        if name == file and line in handlers:
            return handlers[line]
        if name == file or (name.startswith("<") and not name.startswith("<frozen")):
            nearest = nearest or (line if name == file else 0)
        frame = frame.f_back
    return nearest
