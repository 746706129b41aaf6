"""In the runner: what a candidate has replaced in torch, Python or this package, and which global flags it leaves.

A snapshot holds the functions, classes and modules that others reach by name, taken before the candidate is imported.
New names are no change: imports, registrations and compilers add many. Only what was there and is now something else.

It lives where the candidate lives. It looks nothing up by a name that the candidate could have bound anew, but one that
patches memory, or this very object, is not seen: it is one defence of several.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

_MODULES = (
    "torch", "torch._C", "torch._C._nn", "torch._C._autograd", "torch.nn", "torch.nn.functional", "torch.nn.init",
    "torch.nn.modules.module", "torch.cuda", "torch.cuda.streams", "torch.cuda.graphs", "torch.cuda.memory",
    "torch.cuda.random", "torch.testing", "torch.testing._comparison", "torch.random", "torch.autograd",
    "torch.autograd.profiler", "torch.profiler", "torch.utils", "torch.utils.benchmark", "torch.utils.cpp_extension",
    "torch.utils.data", "torch.utils.checkpoint", "torch.utils.dlpack", "torch.backends.cuda", "torch.backends.cudnn",
    "torch.linalg", "torch.fft", "torch.special", "torch.serialization", "torch.storage", "torch.library",
    "torch.overrides", "torch.amp", "torch._tensor", "torch.functional", "torch._jit_internal",
    "time", "builtins", "os", "posix", "posixpath", "sys", "random", "math", "gc", "inspect", "json", "json.decoder",
    "json.encoder", "socket", "_socket", "threading", "_thread", "subprocess", "pickle", "io", "struct", "ctypes",
    "importlib", "importlib.util", "linecache", "traceback", "statistics", "collections", "functools", "tempfile",
    "numpy", "numpy.random", "numpy.testing", "numpy.linalg",
    "triton", "triton.testing", "triton.runtime", "triton.runtime.jit", "triton.runtime.autotuner",
    "triton.runtime.cache", "triton.compiler",
)  # fmt: skip
_OURS = "kernelwright."
_CLASSES = (torch.Tensor, torch._C.TensorBase, torch.Generator, torch.Size, torch.UntypedStorage, torch.TypedStorage)
_WITH_CLASSES = ("torch.nn", "torch.cuda", "torch.autograd", "torch.testing._comparison", "json", "threading", "random")
"""Modules whose classes are looked into as well."""
_KINDS = (
    FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.ClassMethodDescriptorType, type, ModuleType, staticmethod, classmethod, property,
)  # fmt: skip
"""What counts as replaced when it is no longer the same: plain values change with honest work."""
_MAX_CHANGES = 40
_DYNAMO = tuple(str(Path(torch.__file__).parent / name) for name in ("_dynamo/", "_compile.py"))

_OPERATORS = (
    "aten::copy_", "aten::as_strided", "aten::view", "aten::slice.Tensor", "aten::fill_.Scalar", "aten::_to_copy",
    "aten::clone", "aten::empty.memory_format", "aten::empty_strided", "aten::set_.source_Storage_storage_offset",
)  # fmt: skip
"""By which the sandbox itself takes inputs and hands over outputs."""
_dispatch_dump = torch._C._dispatch_dump

_isinstance, _getattr, _type, _list, _str, _repr, _gone = isinstance, getattr, type, list, str, repr, object()


class Witness:
    """The snapshot, taken when made: a few milliseconds."""

    def __init__(self) -> None:
        self._watched = [
            (label, place, _type(place), _contents(place), _inherited(place)) for label, place in _places()
        ]
        self._dispatched = {name: _dispatch_dump(name) for name in _OPERATORS}

    def changes(self) -> list[str]:
        """What has been replaced since, in sentences ("time.perf_counter was replaced by <lambda>, candidate.py:8")."""
        found: list[str] = []
        for label, place, kind, before, inherited in self._watched:
            if _type(place) is not kind:
                found.append(f"{label} was given another class, {_describe(_type(place))}")
            now = place.__dict__
            for name, (value, code) in before.items():
                new = now.get(name, _gone)
                if new is value:
                    if code is not None and value.__code__ is not code:
                        found.append(f"the code of {label}.{name} was replaced, {_place_of(value)}")
                elif new is _gone:
                    found.append(f"{label}.{name} was removed")
                elif not (label.startswith("torch") and _is_dynamos(new)):
                    found.append(f"{label}.{name} was replaced by {_describe(new)}")
            for name in inherited:
                if (new := now.get(name, _gone)) is not _gone:
                    found.append(f"{label}.{name} was replaced by {_describe(new)}")
        for name, dump in self._dispatched.items():
            if _dispatch_dump(name) != dump:
                found.append(f"the operator {name} was given another kernel")
        return found[:_MAX_CHANGES]


def _places() -> list[tuple[str, Any]]:
    """(name, module or class) of all that is looked at."""
    modules = {name: sys.modules[name] for name in _MODULES if name in sys.modules}
    ours = {name: m for name, m in sys.modules.items() if name.startswith(_OURS)}
    places: list[tuple[str, Any]] = [*modules.items(), *ours.items()]
    places += [(f"{c.__module__}.{c.__qualname__}", c) for c in _CLASSES]
    for name, module in [*((n, modules[n]) for n in _WITH_CLASSES if n in modules), *ours.items()]:
        prefix = _OURS if name.startswith(_OURS) else name.partition(".")[0]
        classes = [v for v in _list(vars(module).values()) if _type(v) is type or _isinstance(v, type)]
        places += [(f"{name}.{c.__name__}", c) for c in classes if c.__module__.startswith(prefix)]
    seen: set[int] = set()
    return [(label, p) for label, p in places if not (id(p) in seen or seen.add(id(p)))]  # type: ignore[func-returns-value]


def _contents(place: Any) -> dict[str, tuple[Any, Any]]:
    """By name: the object, and a function's code."""
    return {
        name: (value, value.__code__ if _isinstance(value, FunctionType) else None)
        for name, value in _list(place.__dict__.items())
        if _isinstance(value, _KINDS)
    }


def _inherited(place: Any) -> list[str]:
    """Names that a class has from its bases, and that one of its own would hide."""
    if not _isinstance(place, type):
        return []
    own = place.__dict__
    return _list({name: None for base in place.__mro__[1:] for name in _contents(base) if name not in own})


def _is_dynamos(value: Any) -> bool:
    """Whether torch.compile has put it there: it wraps a few functions of torch when it is first used."""
    return _isinstance(value, FunctionType) and value.__code__.co_filename.startswith(_DYNAMO)


def _describe(value: Any) -> str:
    if _isinstance(value, FunctionType):
        return f"{value.__name__}, {_place_of(value)}"
    if _isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    return f"a {_type(value).__name__}"


def _place_of(function: Any) -> str:
    code = function.__code__
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def flags() -> dict[str, Any]:
    """The process's global settings that change what is computed or how fast, as plain values.

    torch.backends.cudnn.benchmark is none of them: it lets a library choose among its own kernels.
    """
    settings = {name: _ask(question) for name, question in _QUESTIONS.items()}
    return {name: value if _isinstance(value, bool | int | float) else _str(value) for name, value in settings.items()}


def differences(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[str]:
    """Sentences about the flags that a candidate leaves otherwise than the reference does."""
    names = [name for name in reference if candidate.get(name) != reference[name]]
    return [f"{name} is left at {candidate.get(name)}; the reference leaves it at {reference[name]}" for name in names]


def _ask(question: Any) -> Any:
    try:
        return question()
    except (AttributeError, RuntimeError) as error:
        # Some versions lack a setting; some refuse to answer where old and new names of one have been mixed.
        return _type(error).__name__


_cuda, _cudnn, _backends = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends
_autocast, _gc_enabled, _switch_interval = torch.is_autocast_enabled, gc.isenabled, sys.getswitchinterval
_SMALL = 5e-324
_QUESTIONS = {
    "matmul.allow_tf32": lambda: _cuda.allow_tf32,
    "cudnn.allow_tf32": lambda: _cudnn.allow_tf32,
    "fp32_precision": lambda: _getattr(_backends, "fp32_precision", "none"),
    "matmul.fp32_precision": lambda: _getattr(_cuda, "fp32_precision", "none"),
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "fp16_reduced_precision_reduction": lambda: _cuda.allow_fp16_reduced_precision_reduction,
    "bf16_reduced_precision_reduction": lambda: _cuda.allow_bf16_reduced_precision_reduction,
    "fp16_accumulation": lambda: _getattr(_cuda, "allow_fp16_accumulation", False),
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "cudnn.deterministic": lambda: _cudnn.deterministic,
    "default_dtype": torch.get_default_dtype,
    "default_device": torch.get_default_device,
    "num_threads": torch.get_num_threads,
    "num_interop_threads": torch.get_num_interop_threads,
    "grad_enabled": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "autocast_cuda": lambda: _autocast("cuda"),
    "autocast_cpu": lambda: _autocast("cpu"),
    "function_modes": torch._C._len_torch_function_stack,
    "dispatch_modes": torch._C._len_torch_dispatch_stack,
    # There is no getter: what becomes of a denormal tells.
    "flush_denormal": lambda: _SMALL * 1.0 == 0.0,
    "gc_enabled": _gc_enabled,
    "switch_interval": _switch_interval,
}
"""By name: what answers, bound here and now. (sys.flags cannot be changed.)"""
