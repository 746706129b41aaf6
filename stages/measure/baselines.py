"""The reference as a contender: eager and compiled, each in a process that never loads a candidate."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote

MODES: dict[str, str | None] = {
    "eager": None,
    "compile": "default",
    # Without CUDA graphs: a replay has no launch cost, copies its inputs into buffers of its own and returns the same
    # output buffers each time. A candidate is called like any module, so only the kernels would not be compared.
    "max-autotune": "max-autotune-no-cudagraphs",
}
"""Baseline names and the `mode` that torch.compile gets; None leaves the module eager."""
FIRST_CALL_TIMEOUT_S = 600.0
"""Inductor's first compilation takes some 20 s on a CPU, and its autotuning minutes."""


def flags(precision: Precision) -> dict[str, Any]:
    """The precision contract's flags, as fields of the runner's `load` message: for both sides of every comparison.

    A float32 baseline beside a candidate that may use TF32 would give it a sevenfold gain for nothing.
    """
    return {"allow_tf32": precision is Precision.TF32}


class Baselines:
    """Runners that hold the reference, started early and waited for late: compiling overlaps with other work."""

    def __init__(self, zygote: Zygote, names: tuple[str, ...], load: dict[str, Any], caches: Path) -> None:
        """Start loading. `load` holds the fields of the runner's `load` message for the reference.

        What Inductor compiles stays in `caches/inductor`.
        """
        self.runners: dict[str, Runner] = {}
        self.failed: dict[str, str] = {}
        """Baselines that could not be had, with the reason."""
        self.knows: dict[str, int] = {}
        """The seed whose parameters each has been given."""
        # In full, for the baseline's process works in a folder of its own.
        folder = (caches / "inductor").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        load = load | {"environment": {"TORCHINDUCTOR_CACHE_DIR": str(folder)}}

        def begin(name: str) -> Runner:
            runner = zygote.spawn(Phase.TRUSTED)
            runner.post("start", device=load["device"])
            runner.post("load", **load | {"compile_mode": MODES[name]})
            return runner

        # In threads, for the zygote may not be up yet.
        starters = ThreadPoolExecutor(max_workers=len(MODES), thread_name_prefix="baselines")
        self._starting: dict[str, Future[Runner]] = {name: starters.submit(begin, name) for name in names}
        self._loading: list[str] = []
        starters.shutdown(wait=False)

    def started(self) -> None:
        """Wait until every baseline has its process, and its context on the device."""
        while self._starting:
            name = next(iter(self._starting))
            self.runners[name] = self._starting[name].result()
            del self._starting[name]
            if self.try_call(name, lambda r: r.answer(FIRST_CALL_TIMEOUT_S)):
                self._loading.append(name)

    def ready(self) -> list[str]:
        """Wait until every baseline has loaded; the names of those that came up in this call."""
        self.started()
        came, self._loading = self._loading, []
        return [name for name in came if self.try_call(name, lambda r: r.answer(FIRST_CALL_TIMEOUT_S))]

    def try_call(self, name: str, action: Any) -> bool:
        """Run `action(runner)`; a baseline that fails is dropped with its reason, never the run."""
        try:
            action(self.runners[name])
        except RunnerFailed as failure:
            self.failed[name] = failure.message.splitlines()[0] if failure.message else failure.kind
            self.runners.pop(name).kill()
            return False
        return True

    def close(self) -> None:
        """End the runners."""
        with contextlib.suppress(EnvironmentFault):
            self.started()
        for runner in self.runners.values():
            runner.kill()
        self.runners.clear()
