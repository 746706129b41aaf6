"""One problem on one device: its cases and their right answers, its baselines, and the evaluation of candidates.

The story of a candidate after it has been proposed: built in a process that is thrown away, verified in a fresh one on
every case, and timed there beside the baselines, with the device to itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import queue
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.stages.compile import build_folder
from kernelwright.stages.execute import building, timing
from kernelwright.stages.execute.job import Job, JobResult
from kernelwright.stages.execute.trial import Trial
from kernelwright.stages.measure import devices
from kernelwright.stages.measure.baselines import FIRST_CALL_TIMEOUT_S, Baselines
from kernelwright.stages.measure.lock import DeviceLock
from kernelwright.stages.measure.timer import clock_for
from kernelwright.stages.sandbox import prebuilt, stream
from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Candidate, Compilation, Measurement
from kernelwright.stages.verify import cases, conduct, gate, oracle
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected

LANES = 6
"""Candidates that a GPU verifies at once: most of it is starting contexts and compilers, which cores share."""
VERIFY_SLOTS = 3
"""Argument sets that a candidate is verified in: it meets the same buffers with new values, and other buffers."""


class Bench:
    """Holds what all candidates of a problem share, so that each costs only its own build, check and timing.

    `evaluate` may run in several threads at once: verification shares the device, timing has it alone.
    """

    def __init__(self, job: Job, zygote: Zygote, cache: Path) -> None:
        """`job` is the first of those that share its problem, device, precision and baselines."""
        self.job = job
        self.device = job.device
        self.lanes = LANES if job.device == "cuda" else 1
        self.zygote = zygote
        self.cache = cache
        self.contract = contract.load(job.problem)
        self.clock = clock_for(job.device)
        self.lock = DeviceLock(job.device)
        self.environment = devices.environment(job.device)
        self.files = tempfile.TemporaryDirectory(prefix="kernelwright-bench-")
        self.init_file = Path(self.files.name) / "init.pkl"
        self.init_file.write_bytes(pickle.dumps(list(self.contract.get_init_inputs())))
        self._instantiate(job.seed)
        self.reference_file = Path(self.files.name) / "reference.py"
        self.reference_file.write_text(job.problem.source)
        self.baselines = Baselines(zygote, job.baselines, self._load_fields(self.reference_file, "Model"), cache)
        self._flags: dict[str, Any] | None = None
        self.ring: timing.Ring | None = None
        self._arenas: queue.SimpleQueue[dict[str, Arena]] = queue.SimpleQueue()
        self._one_at_a_time = threading.Lock()
        self._baselines_know: int | None = None
        """The seed whose parameters the baselines hold."""
        self.best_over_eager: float | None = None
        """Time of the fastest correct candidate so far as a fraction of eager's, for screening."""
        self.draw(job.seed)

    def draw(self, seed: int) -> None:
        """Draw the model's parameters and the cases anew, and work out the right answers."""
        self._instantiate(seed)
        self.cases: list[tuple[Case, Expected]] = [
            (case, oracle.expect(self.model, case, self.contract.tolerance))
            for case in (
                cases.draw(self.contract, self.device, seed + i, self.model, jitter=i >= 2)
                for i in range(self.job.effort.verify_seeds)
            )
        ]
        timed = [
            cases.draw(self.contract, self.device, seed + 1000 + i, self.model, jitter=False)
            for i in range(1 if self.cases[0][0].nbytes > timing.SINGLE_ABOVE_BYTES else timing.TIMED_CASES)
        ]
        if self.ring is None:
            self.ring = timing.Ring(self.model, timed, self.cases[0][1], self.contract.tolerance, self.device)
        else:
            self.ring.redraw(self.model, timed)

    def _instantiate(self, seed: int) -> None:
        self.seed = seed
        self.model, _ = contract.instantiate(self.contract, self.device, seed)

    def evaluate(self, job: Job, compilation: Compilation, on_stage: Callable[[str], None]) -> JobResult:
        """Verify and measure one compiled candidate. Whatever it does is a verdict, never an exception."""
        trial = Trial(job, compilation)
        try:
            if compilation.ok:
                with self.lock.shared():
                    self._check(trial, on_stage)
                if job.timed and trial.passes:
                    on_stage("measure")
                    with self.lock.exclusive(), trial.took("measure"):
                        trial.measurement = self._measure(trial)
        except RunnerFailed as failure:
            trial.failure = failure
            if trial.runner is not None:
                # What it tried may be the reason, and says more than that it failed.
                trial.checks += [c for c in conduct.report(trial.runner, job.effort.timeout_s) if not c.passed]
        finally:
            if trial.runner is not None:
                trial.runner.kill()
        return trial.result(self.environment)

    def _check(self, trial: Trial, on_stage: Callable[[str], None]) -> None:
        """All that may share the device: building, verifying, and getting the baselines ready."""
        with self._lane() as arenas:
            build = building.needed(trial.job.candidate)
            try:
                self._build_and_verify(trial, arenas, on_stage, build=build)
            except RunnerFailed as failure:
                if failure.kind != prebuilt.LATE or build:
                    raise
                # Nothing in its source told that it would want a compiler.
                trial.start_again()
                self._build_and_verify(trial, arenas, on_stage, build=True)
        if trial.job.timed and trial.passes:
            on_stage("baselines")
            with trial.took("baselines"):
                self._prepare_baselines()

    def _build_and_verify(
        self, trial: Trial, arenas: Mapping[str, Arena], on_stage: Callable[[str], None], *, build: bool
    ) -> None:
        if build:
            on_stage("build")
            self._build(trial, arenas[""])
        if trial.passes:
            on_stage("verify")
            with trial.took("verify"):
                trial.runner = self.zygote.spawn(Phase.RUN, [self._own_folder(trial.job.candidate)])
                self._verify(trial, trial.runner, arenas)

    def _build(self, trial: Trial, arena: Arena) -> None:
        case, _ = self.cases[0]
        built = building.build(
            self.zygote, trial.job, self.cache, arena, case, lambda runner: self._load(runner, trial.job)
        )
        trial.compilation = dataclasses.replace(
            trial.compilation,
            seconds=trial.compilation.seconds + built.seconds,
            resources=trial.compilation.resources or built.resources,
        )

    def _verify(self, trial: Trial, runner: Runner, arenas: Mapping[str, Arena]) -> None:
        timeout_s = trial.job.effort.timeout_s
        self._load(runner, trial.job)
        trial.checks += [c for c in conduct.report(runner, timeout_s) if not c.passed]
        if not trial.passes:
            return
        for arena in arenas.values():
            arena.connect(runner)
        gate.Gate(runner, arenas, timeout_s, self._random(), trial.checks).try_all(self.cases)
        if trial.passes:
            trial.checks += [
                *conduct.report(runner, timeout_s),
                conduct.same_flags(self._reference_flags(arenas[""]), conduct.flags(runner, timeout_s)),
                conduct.rest(runner),
            ]
        for arena in arenas.values():
            arena.disconnect(runner)

    def _reference_flags(self, arena: Arena) -> dict[str, Any]:
        """The global switches as a call of the reference leaves them, in a process of its own."""
        with self._one_at_a_time:
            if self._flags is None:
                runner = self.zygote.spawn(Phase.TRUSTED)
                try:
                    runner.ask("load", FIRST_CALL_TIMEOUT_S, **self._load_fields(self.reference_file, "Model"))
                    arena.connect(runner)
                    arena.load_state(runner, FIRST_CALL_TIMEOUT_S)
                    slots = list(arena.slots)[:1]
                    stream.region(runner, slots, FIRST_CALL_TIMEOUT_S, self._random(), restore=True)
                    self._flags = conduct.flags(runner, FIRST_CALL_TIMEOUT_S)
                finally:
                    runner.kill()
            return self._flags

    def _measure(self, trial: Trial) -> Measurement | None:
        assert self.ring is not None
        assert trial.runner is not None
        effort = trial.job.effort
        session = timing.Session(self.ring, self.clock, effort, self.baselines.runners, trial.runner, self._random())
        known = [v for v in (trial.job.incumbent_ms_over_eager, self.best_over_eager) if v is not None]
        measurement = session.run(trial.checks, min(known, default=None), self.baselines.failed)
        if measurement is None:
            return None
        trial.checks += [*conduct.report(trial.runner, effort.timeout_s), conduct.rest(trial.runner)]
        if "eager" in measurement.baselines:
            over_eager = measurement.candidate.median_ms / measurement.baselines["eager"].median_ms
            self.best_over_eager = min(self.best_over_eager or over_eager, over_eager)
        return session.aside(measurement)

    def _load(self, runner: Runner, job: Job) -> None:
        candidate = job.candidate
        path = runner.home / f"candidate_{candidate.hash[:12]}.py"
        path.write_text(candidate.source)
        init = runner.home / "init.pkl"
        init.write_bytes(self.init_file.read_bytes())
        caches = building.caches(candidate, self.cache)
        fields = self._load_fields(path, "ModelNew") | {"environment": caches, "init": str(init)}
        runner.ask("load", building.timeout_s(job), **fields)

    def _own_folder(self, candidate: Candidate) -> Path:
        folder = build_folder(candidate, self.cache).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _load_fields(self, path: Path, class_name: str) -> dict[str, Any]:
        return {
            "path": str(path),
            "class_name": class_name,
            "init": str(self.init_file),
            "device": self.device,
            "training": self.model.training,
            "threads": torch.get_num_threads(),
            "allow_tf32": False,
            "compile_mode": None,
            "environment": {},
        }

    def _prepare_baselines(self) -> None:
        """Wait for baselines that are still loading, give each the present parameters and an untimed call."""
        assert self.ring is not None
        ring = self.ring

        def warm(runner: Runner) -> None:
            ring.arena.load_state(runner, FIRST_CALL_TIMEOUT_S)
            stream.region(runner, ring.slots[:1], FIRST_CALL_TIMEOUT_S, self._random(), restore=True)

        with self._one_at_a_time:
            for name in self.baselines.ready():
                self.baselines.try_call(name, ring.arena.connect)
            if self._baselines_know != self.seed:
                self._baselines_know = self.seed
                for name in list(self.baselines.runners):
                    self.baselines.try_call(name, warm)

    @contextlib.contextmanager
    def _lane(self) -> Iterator[dict[str, Arena]]:
        """Arenas of all layouts, for one candidate at a time; made when none is free."""
        try:
            lane = self._arenas.get_nowait()
        except queue.Empty:
            lane = {}
            for case, expected in self.cases:
                if case.layout not in lane:
                    lane[case.layout] = Arena(case, expected, VERIFY_SLOTS, self.device)
        for arena in lane.values():
            arena.mend_guards()
        try:
            yield lane
        finally:
            self._arenas.put(lane)

    @staticmethod
    def _random() -> random.Random:
        """What decides which calls are compared: from the operating system, so that no candidate can know it."""
        return random.Random(random.SystemRandom().getrandbits(64))

    def close(self) -> None:
        """End the baselines and free the shared memory."""
        self.baselines.close()
        while not self._arenas.empty():
            for arena in self._arenas.get().values():
                arena.close()
        if self.ring is not None:
            self.ring.arena.close()
        self.files.cleanup()
