"""Watch Triton kernels: launches through a jitted function, whatever wraps it, and through a compiled kernel."""

from __future__ import annotations

import functools
from typing import Any

from kernelwright.stages.sandbox.inspect.registry import Registry

BACKEND = "triton"


def watch(registry: Registry) -> None:
    """Install the hooks. Autotuners, heuristics and `wrap_triton` all end at the functions that are replaced here."""
    try:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return
    within = [0]
    """How many launches of jitted functions are under way: the compiled kernel inside of one is not another launch."""
    for kind in (JITFunction, InterpretedFunction):
        kind.run = _watched_run(kind.run, registry, within)
    if hasattr(CompiledKernel, "_init_handles"):
        CompiledKernel._init_handles = _watched_handles(CompiledKernel._init_handles, registry, within)


def _watched_run(original: Any, registry: Registry, within: list[int]) -> Any:
    @functools.wraps(original)
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        def launch() -> Any:
            within[0] += 1
            try:
                return original(self, *args, grid=grid, warmup=warmup, **kwargs)
            finally:
                within[0] -= 1

        if warmup or not _is_candidates(self):
            return launch()
        return registry.launch(self.fn.__name__, BACKEND, launch, lambda: None)

    return run


def _is_candidates(function: Any) -> bool:
    """Whether the kernel is no part of Triton itself and was not written by torch.compile."""
    code = getattr(function.fn, "__code__", None)
    file = code.co_filename if code is not None else ""
    return "torchinductor" not in file and "/site-packages/triton/" not in file


def _watched_handles(original: Any, registry: Registry, within: list[int]) -> Any:
    """A kernel compiled ahead is launched by its own `run`, which is made by `_init_handles`."""

    @functools.wraps(original)
    def init_handles(self: Any) -> None:
        fresh = self.module is None
        original(self)
        if not fresh or getattr(self, "_run", None) is None:
            return
        launcher, name = self._run, str(self.name)

        @functools.wraps(launcher)
        def run(*args: Any, **kwargs: Any) -> Any:
            if within[0] or name.startswith("triton_"):
                return launcher(*args, **kwargs)
            return registry.launch(name, BACKEND, functools.partial(launcher, *args, **kwargs), lambda: None)

        self._run = run

    return init_handles
