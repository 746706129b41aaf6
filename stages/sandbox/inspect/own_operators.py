"""Operators that a candidate adds to torch's own: by a C++ library, or by registering a Python function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from kernelwright.stages.sandbox.inspect import native
from kernelwright.stages.sandbox.inspect.library_only import storages
from kernelwright.stages.sandbox.inspect.registry import Registry

LIBRARY_NAMESPACES = frozenset(
    {
        "aten",
        "prims",
        "prim",
        "torchvision",
        "quantized",
        "mkldnn",
        "mkl",
        "mkldnn_prepacked",
        "onednn",
        "fbgemm",
        "xnnpack",
        "inductor",
        "c10d",
        "_c10d_functional",
        "profiler",
        "sparse",
        "static_runtime",
        "prepacked",
        "higher_order",
        "rngprims",
        "debugprims",
        "flash_attn",
    }
)

_REGISTERED: dict[str, Callable[..., Any]] = {}
"""Python functions by the qualified name of the operator that they were registered for."""


def is_library(namespace: str) -> bool:
    """Whether operators of this namespace are torch's; higher-order operators have none."""
    return not namespace or namespace in LIBRARY_NAMESPACES


def name_of(qualified: str) -> str:
    """`inspected.twice` for `inspected::twice`."""
    return qualified.replace("::", ".")


def python_function(qualified: str) -> Callable[..., Any] | None:
    """The Python function behind an operator, if it is one: what that calls is watched by itself."""
    if qualified in OPDEFS:
        function: Callable[..., Any] = OPDEFS[qualified]._init_fn
        return function
    return _REGISTERED.get(qualified)


def direct(func: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """The kernel of an operator's overload for the device of its arguments, called without the dispatcher."""
    cuda = any(storage.device.type == "cuda" for storage in storages((args, kwargs)))
    key = torch._C.DispatchKey.CUDA if cuda else torch._C.DispatchKey.CPU
    return python_function(func._schema.name) or functools.partial(func._op_dk, key)


def watch(registry: Registry, backend_of: Callable[[str], str]) -> None:
    """Install the hooks: on registering Python functions, and on calls of `torch.ops.<namespace>.<operator>`.

    The dispatcher's mode alone would miss an operator that is registered for every device: such a one is left above it.
    """
    torch.library.Library.impl = _watched_impl(torch.library.Library.impl)  # type: ignore[method-assign]
    for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
        kind.__call__ = _watched_call(kind.__call__, registry, backend_of)  # type: ignore[method-assign]


def _watched_impl(original: Any) -> Any:
    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        _REGISTERED[f"{self.ns}::{name.rpartition('::')[2].partition('.')[0]}"] = fn
        return original(self, op_name, fn, *args, **kwargs)

    return impl


def _watched_call(original: Any, registry: Registry, backend_of: Callable[[str], str]) -> Any:
    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        qualified = getattr(self, "_qualified_op_name", None) or self._schema.name
        name = name_of(qualified)
        if is_library(qualified.partition("::")[0]) or name in registry.running or python_function(qualified):
            return original(self, *args, **kwargs)
        return native.launch(registry, name, backend_of(name), functools.partial(original, self), args, kwargs)

    return call
