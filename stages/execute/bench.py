"""One problem on one device: its cases and their right answers, its baselines, and the evaluation of candidates.

The story of a candidate after it has been proposed: compiled, loaded in a runner, verified on every case, screened,
measured beside the baselines.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import build_folder, triton_cache
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.measure import devices, stats
from kernelwright.stages.measure.baselines import FIRST_CALL_TIMEOUT_S, Baselines
from kernelwright.stages.measure.timer import Stopwatch, clock_for
from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Candidate, Compilation, Measurement, Status, Verdict
from kernelwright.stages.verify import cases, gate, oracle

TIMED_CASES = 2
"""Distinct input sets that fill the ring while timing; they rotate through the slots from round to round."""
MAX_SLOTS = 32
CLEARLY_SLOWER = 1.25
"""A candidate whose first rounds are slower than the incumbent by this factor is dropped."""
CHECKED_OUTPUTS = 0.25
"""Share of timed regions whose last output is compared."""


class Bench:
    """Holds what all candidates of a problem share, so that each costs only its own compile, check and timing."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        seed: int,
        effort: Effort,
        zygote: Zygote,
        cache: Path,
        baselines: tuple[str, ...] = ("eager", "compile"),
    ) -> None:
        self.problem = problem
        self.device = device
        self.effort = effort
        self.zygote = zygote
        self.cache = cache
        self.contract = contract.load(problem)
        self.draw(seed)
        first, expected = self.cases[0]
        cache_bytes = devices.last_level_cache_bytes(device)
        wanted = -(-2 * cache_bytes // max(first.nbytes, 1))
        self.arena = Arena(first, expected, min(max(wanted, TIMED_CASES), MAX_SLOTS), device)
        self.clock = clock_for(device)
        self.environment = devices.environment(device)
        self.files = tempfile.TemporaryDirectory(prefix="kernelwright-bench-")
        self.init_file = Path(self.files.name) / "init.pkl"
        self.init_file.write_bytes(pickle.dumps(list(self.contract.get_init_inputs())))
        reference = Path(self.files.name) / "reference.py"
        reference.write_text(problem.source)
        self.baselines = Baselines(zygote, baselines, self._load_fields(reference, "Model"), cache)
        self.best_over_eager: float | None = None
        """Time of the fastest correct candidate so far as a fraction of eager's, for screening."""

    def draw(self, seed: int) -> None:
        """Draw the model's parameters and the cases anew, and work out the right answers."""
        self.seed = seed
        model, _ = contract.instantiate(self.contract, self.device, seed)
        self.training = model.training
        drawn = [
            cases.draw(self.contract, self.device, seed + i, model, jitter=i >= TIMED_CASES)
            for i in range(max(self.effort.verify_seeds, TIMED_CASES))
        ]
        self.cases = [(case, oracle.expect(model, case, self.contract.tolerance)) for case in drawn]

    def evaluate(self, job: Job, compilation: Compilation, on_stage: Callable[[str], None]) -> JobResult:
        """Verify and measure one compiled candidate. Whatever it does is a verdict, never an exception."""
        seconds = {"compile": compilation.seconds}

        def result(verdict: Verdict, measurement: Measurement | None = None) -> JobResult:
            return JobResult(
                job.key,
                job.candidate.hash,
                verdict,
                self.environment,
                compilation=compilation,
                measurement=measurement,
                seconds=seconds,
            )

        if not compilation.ok:
            return result(Verdict(Status.COMPILE_ERROR, compilation.log))
        on_stage("verify")
        start = time.monotonic()
        runner = self.zygote.spawn()
        try:
            try:
                self._load(runner, job.candidate, job.effort)
                verdict = gate.verify(runner, self.arena, self.cases, job.effort.timeout_s)
            except RunnerFailed as failure:
                verdict = gate.verdict_of(failure)
            seconds["verify"] = time.monotonic() - start
            if verdict.status is not Status.CORRECT:
                return result(verdict)
            start = time.monotonic()
            on_stage("baselines")
            self._prepare_baselines()
            seconds["baselines"] = time.monotonic() - start
            on_stage("measure")
            start = time.monotonic()
            verdict, measurement = self._measure(runner, job, verdict)
            seconds["measure"] = time.monotonic() - start
            return result(verdict, measurement)
        finally:
            runner.kill()

    def _load(self, runner: Runner, candidate: Candidate, effort: Effort) -> None:
        path = runner.home / f"candidate_{candidate.hash[:12]}.py"
        path.write_text(candidate.source)
        self.arena.connect(runner)
        prebuilt = {
            "KERNELWRIGHT_BUILD": str(build_folder(candidate, self.cache).absolute()),
            "TRITON_CACHE_DIR": str(triton_cache(candidate, self.cache).absolute()),
        }
        fields = self._load_fields(path, "ModelNew") | {"environment": prebuilt}
        runner.ask("load", effort.timeout_s, **fields)

    def _load_fields(self, path: Path, class_name: str) -> dict[str, Any]:
        return {
            "path": str(path),
            "class_name": class_name,
            "init": str(self.init_file),
            "device": self.device,
            "training": self.training,
            "threads": torch.get_num_threads(),
            "compile_mode": None,
            "environment": {},
        }

    def _prepare_baselines(self) -> None:
        """Wait for baselines that are still loading, give each the present parameters and an untimed call."""
        first = self.cases[0][0]
        for name in self.baselines.ready():
            self.baselines.try_call(name, self.arena.connect)

        def warm(runner: Runner) -> None:
            self.arena.write_state(first, runner, FIRST_CALL_TIMEOUT_S)
            self.arena.write_slot(0, first)
            runner.ask("run", FIRST_CALL_TIMEOUT_S, slots=[0])

        for name in list(self.baselines.runners):
            self.baselines.try_call(name, warm)

    def _measure(self, runner: Runner, job: Job, verdict: Verdict) -> tuple[Verdict, Measurement | None]:
        """Interleaved rounds of the candidate and the baselines; some timed outputs are compared on the way."""
        effort = job.effort
        # Inductor compiles for minutes at worst, but only in the first call, which is over.
        timeout_s = max(effort.timeout_s, effort.region_ms)
        watch = Stopwatch(self.arena, self.clock, effort.region_ms, timeout_s, self.seed)
        contenders = {**self.baselines.runners, "candidate": runner}
        checks = list(verdict.checks)

        def after(name: str, which: Runner, slot: int) -> None:
            if name == "candidate" and watch.random.random() < CHECKED_OUTPUTS:
                expected = self._slot_expected(slot, rotation)
                checks.extend(gate.judge(which, self.arena, expected, timeout_s, "timed call"))

        rotation = 0
        try:
            self._fill_ring(rotation)
            self.arena.write_state(self.cases[0][0], runner, timeout_s)
            for name, contender in contenders.items():
                watch.calibrate(name, contender)
            screened = False
            for number in range(effort.rounds):
                rotation = number
                self._fill_ring(rotation)
                watch.round(contenders, after)
                failed = next((c for c in checks if not c.passed), None)
                if failed:
                    message = f"a timed call gave a wrong result: {failed.name} ({failed.detail})"
                    return Verdict(Status.INCORRECT, message, tuple(checks)), None
                if number + 1 == effort.screen_rounds and self._clearly_slower(watch, job):
                    screened = True
                    break
        except RunnerFailed as failure:
            return gate.verdict_of(failure, checks), None
        return Verdict(verdict.status, "", tuple(checks)), self._measurement(watch, screened)

    def _fill_ring(self, rotation: int) -> None:
        for slot in range(self.arena.slots):
            self.arena.write_slot(slot, self.cases[(slot + rotation) % TIMED_CASES][0])

    def _slot_expected(self, slot: int, rotation: int) -> oracle.Expected:
        return self.cases[(slot + rotation) % TIMED_CASES][1]

    def _clearly_slower(self, watch: Stopwatch, job: Job) -> bool:
        known = [v for v in (job.incumbent_ms_over_eager, self.best_over_eager) if v is not None]
        if not known or "eager" not in watch.samples_ms:
            return False
        ratio = watch.timing("candidate").median_ms / watch.timing("eager").median_ms
        return ratio > CLEARLY_SLOWER * min(known)

    def _measurement(self, watch: Stopwatch, screened: bool) -> Measurement:
        candidate = watch.timing("candidate")
        baselines = {name: watch.timing(name) for name in self.baselines.runners}
        speedups = {name: stats.speedup(t.samples_ms, candidate.samples_ms) for name, t in baselines.items()}
        if "eager" in baselines:
            over_eager = candidate.median_ms / baselines["eager"].median_ms
            self.best_over_eager = min(self.best_over_eager or over_eager, over_eager)
        absent = "".join(f"; no baseline {name}: {why}" for name, why in self.baselines.failed.items())
        method = (
            f"{self.clock.method}; {len(candidate.samples_ms)} interleaved rounds in random order; inputs rotate over "
            f"{self.arena.slots} sets ({self.cases[0][0].nbytes * self.arena.slots / 2**20:.0f} MiB), refilled every "
            f"round{absent}"
        )
        return Measurement(candidate, baselines, speedups, method, screened)

    def close(self) -> None:
        """End the baselines and free the shared memory."""
        self.baselines.close()
        self.arena.close()
        self.files.cleanup()
