"""Watch native functions: those of libraries opened by ctypes, and those of extension modules that torch built."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import types
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.stages.sandbox.inspect.library_only import LibraryOnly
from kernelwright.stages.sandbox.inspect.registry import SENTINEL, Registry, is_candidates_library


def watch(registry: Registry, backend_of: Callable[[str], str]) -> None:
    """Install the hooks, before the candidate is imported. `backend_of` gives a native function's back end."""
    _watch_libraries(registry, backend_of)
    _watch_function_pointers(registry, backend_of)
    _watch_extensions(registry, backend_of)


def _watch_libraries(registry: Registry, backend_of: Callable[[str], str]) -> None:
    original = ctypes.CDLL.__init__

    @functools.wraps(original)
    def opened(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        original(self, name, *args, **kwargs)
        if is_candidates_library(str(name)):
            self._FuncPtr = _watched_pointer(self._FuncPtr, registry, backend_of)

    ctypes.CDLL.__init__ = opened  # type: ignore[method-assign]


def _watched_pointer(base: Any, registry: Registry, backend_of: Callable[[str], str]) -> Any:
    """A class of ctypes functions whose calls are launches."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(getattr(self, "__name__", None) or "function pointer")
        run = functools.partial(base.__call__, self, *args, **kwargs)
        return registry.launch(name, backend_of(name), run, lambda: None if self.restype is None else 0)

    # ctypes wants these in each class's own namespace.
    own = {key: getattr(base, key) for key in ("_flags_", "_restype_", "_argtypes_") if hasattr(base, key)}
    return type(base)("Watched", (base,), own | {"__call__": call})


def _watch_function_pointers(registry: Registry, backend_of: Callable[[str], str]) -> None:
    """Prototypes from CFUNCTYPE call an address: the same function by another way."""
    for maker in ("CFUNCTYPE", "PYFUNCTYPE"):
        original = getattr(ctypes, maker)

        def prototype(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            return _watched_pointer(_original(*args, **kwargs), registry, backend_of)

        setattr(ctypes, maker, functools.wraps(original)(prototype))


def _watch_extensions(registry: Registry, backend_of: Callable[[str], str]) -> None:
    loader = importlib.machinery.ExtensionFileLoader
    original = loader.exec_module

    @functools.wraps(original)
    def executed(self: Any, module: types.ModuleType) -> None:
        original(self, module)
        if is_candidates_library(getattr(self, "path", None)):
            _watch_members(module, "", registry, backend_of)
            for name, value in list(vars(module).items()):
                if isinstance(value, type):
                    _watch_members(value, f"{name}.", registry, backend_of)

    loader.exec_module = executed  # type: ignore[method-assign]


def _watch_members(owner: Any, prefix: str, registry: Registry, backend_of: Callable[[str], str]) -> None:
    """Replace the functions of a module or class by watched ones; what cannot be replaced stays unwatched."""
    for name, value in list(vars(owner).items()):
        if callable(value) and not isinstance(value, type) and (not name.startswith("__") or name == "__call__"):
            full = prefix + name
            with contextlib.suppress(AttributeError, TypeError):
                setattr(owner, name, _watched_function(full, value, registry, backend_of(full)))
                registry.register(full, backend_of(full))


def _watched_function(name: str, function: Callable[..., Any], registry: Registry, backend: str) -> Callable[..., Any]:
    """An extension's function; switched off, it leaves its arguments alone and returns tensors that hold a sentinel."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            with LibraryOnly(registry.register(name, backend), (args, kwargs)) as watch:
                return watch.returned(function(*args, **kwargs))

        def skip() -> Any:
            given = _tensors((args, kwargs))
            before = [t.clone() for t in given]
            result = function(*args, **kwargs)
            with torch.no_grad():
                for tensor, old in zip(given, before, strict=True):
                    tensor.copy_(old)
            return unwritten(result, {t.untyped_storage().data_ptr() for t in given})

        return registry.launch(name, backend, run, skip)

    return call


def unwritten(value: Any, kept: set[int]) -> Any:
    """A result of the same form that nobody wrote: tensors hold the sentinel, but for those in the storages `kept`."""
    if isinstance(value, torch.Tensor):
        if value.untyped_storage().data_ptr() in kept:
            return value
        return torch.empty_like(value).fill_(sentinel(value.dtype))
    if isinstance(value, list | tuple):
        return type(value)([unwritten(v, kept) for v in value])
    if isinstance(value, dict):
        return {k: unwritten(v, kept) for k, v in value.items()}
    return SENTINEL if isinstance(value, float) else value


def sentinel(dtype: torch.dtype) -> float | int:
    """What an unwritten element holds; a small number for integers, so that it may be used as an index."""
    return SENTINEL if dtype.is_floating_point or dtype.is_complex else 1


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []
