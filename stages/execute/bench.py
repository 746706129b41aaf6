"""One problem on one device: its cases and their right answers, its baselines, and the evaluation of candidates.

The story of a candidate after it has been proposed: built in a process that is thrown away, verified in a fresh one on
every case, and timed there beside the baselines, with the device to itself.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.stages.compile import build_folder
from kernelwright.stages.execute import building, timing
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.measure import devices
from kernelwright.stages.measure.baselines import FIRST_CALL_TIMEOUT_S, Baselines
from kernelwright.stages.measure.lock import DeviceLock
from kernelwright.stages.measure.timer import clock_for
from kernelwright.stages.sandbox import stream
from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Candidate, Check, Compilation, Measurement, OwnWork, Status, Verdict
from kernelwright.stages.verify import cases, gate, oracle
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
        reference = Path(self.files.name) / "reference.py"
        reference.write_text(job.problem.source)
        self.baselines = Baselines(zygote, job.baselines, self._load_fields(reference, "Model"), cache)
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
        seconds = {"compile": compilation.seconds}
        checks: list[Check] = []
        measurement: Measurement | None = None
        work: OwnWork | None = None
        runner: Runner | None = None
        verdict = None if compilation.ok else Verdict(Status.COMPILE_ERROR, compilation.log)
        try:
            if verdict is None:
                with self.lock.shared():
                    with self._took(seconds, "verify"):
                        on_stage("verify")
                        folder = build_folder(job.candidate, self.cache)
                        folder.mkdir(parents=True, exist_ok=True)
                        runner = self.zygote.spawn(Phase.RUN, [folder])
                        verdict = self._verify(runner, job, checks)
                    if job.timed and verdict.status is Status.CORRECT:
                        with self._took(seconds, "baselines"):
                            on_stage("baselines")
                            self._prepare_baselines()
            if job.timed and runner is not None and verdict.status is Status.CORRECT:
                on_stage("measure")
                with self.lock.exclusive(), self._took(seconds, "measure"):
                    measurement = self._measure(runner, job, checks)
                verdict = gate.verdict_from(checks)
        except RunnerFailed as failure:
            verdict = gate.verdict_of(failure, checks)
        finally:
            if runner is not None:
                runner.kill()
        correct = verdict.status is Status.CORRECT
        return JobResult(
            job.key,
            job.candidate.hash,
            verdict,
            self.environment,
            compilation=compilation,
            measurement=measurement if correct else None,
            work=work,
            seconds=seconds,
        )

    def _verify(self, runner: Runner, job: Job, checks: list[Check]) -> Verdict:
        self._load(runner, job.candidate, job.effort)
        with self._lane() as arenas:
            for arena in arenas.values():
                arena.connect(runner)
            before = gate.Gate(runner, arenas, job.effort.timeout_s, self._random(), checks)
            before.try_all(self.cases)
            for arena in arenas.values():
                arena.disconnect(runner)
        return gate.verdict_from(checks)

    def _measure(self, runner: Runner, job: Job, checks: list[Check]) -> Measurement | None:
        assert self.ring is not None
        session = timing.Session(self.ring, self.clock, job.effort, self.baselines.runners, runner, self._random())
        known = [v for v in (job.incumbent_ms_over_eager, self.best_over_eager) if v is not None]
        measurement = session.run(checks, min(known, default=None), self.baselines.failed)
        if measurement is None:
            return None
        if "eager" in measurement.baselines:
            over_eager = measurement.candidate.median_ms / measurement.baselines["eager"].median_ms
            self.best_over_eager = min(self.best_over_eager or over_eager, over_eager)
        return session.aside(measurement)

    def _load(self, runner: Runner, candidate: Candidate, effort: Effort) -> None:
        path = runner.home / f"candidate_{candidate.hash[:12]}.py"
        path.write_text(candidate.source)
        init = runner.home / "init.pkl"
        init.write_bytes(self.init_file.read_bytes())
        caches = building.caches(candidate, self.cache)
        fields = self._load_fields(path, "ModelNew") | {"environment": caches, "init": str(init)}
        runner.ask("load", effort.timeout_s, **fields)

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
    @contextlib.contextmanager
    def _took(seconds: dict[str, float], stage: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - start

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
