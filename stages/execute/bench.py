"""One problem on one device: its cases and their right answers, its baselines, and the evaluation of candidates.

The story of a candidate after it has been proposed: built in a process that is thrown away, verified in a fresh one on
every case, and timed there beside the baselines, with the device to itself.
"""

from __future__ import annotations

import dataclasses
import pickle
import queue
import random
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.compile import build_folder
from kernelwright.stages.execute import building, pairs, profiling, timing
from kernelwright.stages.execute.job import Job, JobResult, Purpose
from kernelwright.stages.execute.lanes import MOST_LANES, Lanes
from kernelwright.stages.execute.light import Light
from kernelwright.stages.execute.ring import Ring
from kernelwright.stages.execute.trial import Trial
from kernelwright.stages.measure import devices
from kernelwright.stages.measure.baselines import FIRST_CALL_TIMEOUT_S, Baselines, flags
from kernelwright.stages.measure.lock import DeviceLock
from kernelwright.stages.measure.timer import DeviceClock, clock_for
from kernelwright.stages.sandbox import prebuilt, stream
from kernelwright.stages.sandbox.arena import Arena, connect, disconnect
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Backend, Candidate, Compilation, Measurement
from kernelwright.stages.verify import admission, cases, conduct, gate, memory_needs, own_work, probes
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected, Oracle
from kernelwright.stages.verify.source_form import read_form

LATE_CASES = 3
"""Cases that are called before their inputs are there."""


class Bench:
    """Holds what all candidates of a problem share, so that each costs only its own build, check and timing.

    `evaluate` may run in several threads at once: verification shares the device, timing has it alone.
    """

    def __init__(self, job: Job, zygote: Zygote, cache: Path) -> None:
        """`job` is the first of those that share its problem, device, precision and baselines."""
        self.job = job
        self.device = job.device
        self.zygote = zygote
        self.cache = cache
        self.contract = contract.load(job.problem)
        self.precision = job.precision or self.contract.precision
        self.lock = DeviceLock(job.device)
        with self.lock.shared():
            self._make_ready(job)

    def _make_ready(self, job: Job) -> None:
        memory_needs.require(memory_needs.predict(self.contract, job.device), job.device)
        self.clock = clock_for(job.device)
        self.environment = devices.environment(job.device)
        self.files = tempfile.TemporaryDirectory(prefix="kernelwright-bench-")
        self.init_file = Path(self.files.name) / "init.pkl"
        self.init_file.write_bytes(pickle.dumps(list(self.contract.get_init_inputs())))
        self._instantiate(job.seed)
        self.reference_file = Path(self.files.name) / "reference.py"
        self.reference_file.write_text(job.problem.source)
        fields = self._load_fields(self.reference_file, "Model")
        self.baselines = Baselines(self.zygote, job.baselines, fields, self.cache)
        self._flags: dict[str, Any] | None = None
        self.ring: Ring | None = None
        self.lanes: Lanes | None = None
        self.no_counters = ""
        """Why this machine gives no hardware counters, once that has been tried: it is not asked twice."""
        self._one_at_a_time = threading.Lock()
        self._background = ThreadPoolExecutor(max_workers=MOST_LANES, thread_name_prefix="background")
        self._triton_driver = self._background.submit(self._compile_triton_driver)
        self._burials: queue.SimpleQueue[Future[None]] = queue.SimpleQueue()
        self.best_over_eager: float | None = None
        """Time of the fastest correct candidate so far as a fraction of eager's, for screening."""
        self._draw(job.seed)
        if job.device != "cpu":
            # Another problem's candidate may be timed as soon as the lock is free: no context is made then.
            self.baselines.started()

    def draw(self, seed: int) -> None:
        """Draw the model's parameters and the cases anew, and work out the right answers."""
        with self.lock.shared():
            self._instantiate(seed)
            self._draw(seed)

    def _draw(self, seed: int) -> None:
        if self.lanes is not None:
            # Their memory is wanted for the new ones, whose layouts may differ.
            self.lanes.close()
        self.cases: list[tuple[Case, Expected]] = []
        plan = probes.plan(
            self.contract,
            self.model,
            self.device,
            seed,
            thorough=self.job.effort.thorough,
            precision=self.precision,
            oracle=self.oracle,
        )
        self.cases = plan.pairs
        first, expected = next(pair for pair in self.cases if not pair[0].layout)
        self.admission = admission.admit(self.contract, self.model, self.cases, self.precision, oracle=self.oracle)
        timed = [
            cases.draw(self.contract, self.device, seed + 1000 + i, self.model, jitter=False)
            for i in range(1 if first.nbytes > timing.SINGLE_ABOVE_BYTES else timing.TIMED_CASES)
        ]
        if self.ring is None:
            self.ring = Ring(self.oracle, timed, expected, self.device)
        else:
            self.ring.redraw(self.oracle, timed)
        self.light = Light(self.model, self.ring, self.device, self.precision)
        self.lanes = Lanes(self.cases, self.device)

    def _instantiate(self, seed: int) -> None:
        self.seed = seed
        self.model, _ = contract.instantiate(self.contract, self.device, seed)
        self.oracle = Oracle(self.model, self.contract.tolerance, self.precision)

    def evaluate(self, job: Job, compilation: Compilation, on_stage: Callable[[str], None]) -> JobResult:
        """Verify and measure one compiled candidate. Whatever it does is a verdict, never an exception."""
        if job.purpose is Purpose.PROFILE:
            return profiling.profile(self, job, compilation, on_stage)
        trial = Trial(job, compilation, list(self.admission))
        try:
            if compilation.ok and trial.passes:
                self._start(trial, build=job.no_library or building.needed(job.candidate))
                with self.lock.shared():
                    self._check(trial, on_stage)
                if job.timed and trial.passes:
                    on_stage("measure")
                    with self.lock.exclusive(), trial.took("measure"):
                        trial.measurement = self._measure(trial)
                    if trial.runner is not None:
                        trial.checks.append(conduct.rest(trial.runner))
        except RunnerFailed as failure:
            trial.failure = failure
            if trial.runner is not None:
                # What it tried may be the reason, and says more than that it failed.
                trial.checks += [c for c in conduct.report(trial.runner, job.effort.timeout_s) if not c.passed]
        finally:
            self._burials.put(self._background.submit(self._bury, trial))
        return trial.result(self.environment)

    def _bury(self, trial: Trial) -> None:
        """End a candidate's processes, while nobody is timed: a context that goes away keeps the device busy."""
        with self.lock.shared():
            trial.end()

    def settle(self) -> None:
        """Wait until the processes of all candidates so far have ended. Raises EnvironmentFault if one does not."""
        while not self._burials.empty():
            self._burials.get().result()

    def _start(self, trial: Trial, *, build: bool) -> None:
        """Processes for a candidate. Nothing of it runs in them yet: this need not wait for the device."""
        trial.builder = self.spawn(Phase.BUILD, trial.job.candidate) if build else None
        trial.runner = self.spawn(Phase.RUN, trial.job.candidate)

    def spawn(self, phase: Phase, candidate: Candidate) -> Runner:
        """A process for a candidate, which finds the device meanwhile."""
        runner = self.zygote.spawn(phase, [self._own_folder(candidate)])
        runner.post("start", device=self.device)
        return runner

    def _check(self, trial: Trial, on_stage: Callable[[str], None]) -> None:
        """All that may share the device: building, verifying, and getting the baselines ready."""
        assert self.lanes is not None
        with self.lanes.one() as arenas:
            built = trial.builder is not None
            try:
                self._build_and_verify(trial, arenas, on_stage)
            except RunnerFailed as failure:
                if failure.kind != prebuilt.LATE or built:
                    raise
                # Nothing in its source told that it would want a compiler.
                trial.checks.clear()
                trial.end()
                self._start(trial, build=True)
                self._build_and_verify(trial, arenas, on_stage)
        if trial.job.timed and trial.passes:
            on_stage("baselines")
            with trial.took("baselines"):
                self._prepare_baselines()

    def _build_and_verify(self, trial: Trial, arenas: Mapping[str, Arena], on_stage: Callable[[str], None]) -> None:
        if trial.builder is not None:
            on_stage("build")
            self._build(trial, trial.builder, arenas[""])
        if trial.passes and trial.runner is not None:
            on_stage("verify")
            with trial.took("verify"):
                self._verify(trial, trial.runner, arenas)

    def triton_driver(self) -> Path | None:
        """A Triton cache with the library that speaks to the driver; None where it cannot be had."""
        return self._triton_driver.result()

    def _compile_triton_driver(self) -> Path | None:
        if self.device == "cpu":
            return None
        return building.triton_driver(self.zygote, self.cache / f"triton-driver-{self.environment.triton}")

    def _build(self, trial: Trial, builder: Runner, arena: Arena) -> None:
        job = trial.job
        # Ordinary values: among nan and huge ones a copy, or a kernel that matters, would not be told.
        pair = [case for case, _ in self.cases if not (case.layout or case.stressed)][:2]
        triton = job.candidate.backend is Backend.TRITON and self.device == "cuda"
        built = building.build(
            builder,
            job,
            self.cache,
            arena,
            pair,
            lambda runner: self.load(runner, job, inspect=True),
            self.triton_driver() if triton else None,
        )
        trial.compilation = dataclasses.replace(
            trial.compilation,
            seconds=trial.compilation.seconds + built.seconds,
            resources=trial.compilation.resources or built.resources,
        )
        trial.checks += built.conduct
        if not trial.passes:
            return
        claimed = None if job.candidate.backend is Backend.TORCH else job.candidate.backend
        form = read_form(job.candidate.source)
        trial.work, found = own_work.judge(built.inspection, form, claimed=claimed, no_library=job.no_library)
        trial.checks += found

    def _verify(self, trial: Trial, runner: Runner, arenas: Mapping[str, Arena]) -> None:
        timeout_s = trial.job.effort.timeout_s
        self.load(runner, trial.job)
        # What was begun at import may be over when the cases are.
        early = [*conduct.report(runner, timeout_s), conduct.rest(runner)]
        trial.checks += [c for c in early if not c.passed]
        if not trial.passes:
            return
        connect(runner, arenas.values())
        before = gate.Gate(runner, arenas, timeout_s, self.chance(), trial.checks)
        before.try_all(self.cases)
        if trial.passes and isinstance(self.clock, DeviceClock):
            plain = [pair for pair in self.cases if not (pair[0].layout or pair[0].stressed)]
            before.try_late(plain[:LATE_CASES], self.clock.start_signal(runner, timeout_s))
        if trial.passes:
            trial.checks += [
                *conduct.report(runner, timeout_s),
                conduct.same_flags(self._reference_flags(arenas[""]), conduct.flags(runner, timeout_s)),
                conduct.rest(runner),
            ]
        disconnect(runner, arenas.values())

    def _reference_flags(self, arena: Arena) -> dict[str, Any]:
        """The global switches as a call of the reference leaves them: eager's, or those of a process for that alone."""
        with self._one_at_a_time:
            if self._flags is None:
                self._warm_up(self.baselines, ["eager"])
                if "eager" in self.baselines.runners:
                    self._flags = conduct.flags(self.baselines.runners["eager"], FIRST_CALL_TIMEOUT_S)
                else:
                    self._flags = self._flags_apart(arena)
            return self._flags

    def _flags_apart(self, arena: Arena) -> dict[str, Any]:
        runner = self.zygote.spawn(Phase.TRUSTED)
        try:
            runner.ask("load", FIRST_CALL_TIMEOUT_S, **self._load_fields(self.reference_file, "Model"))
            connect(runner, [arena])
            arena.load_state(runner, FIRST_CALL_TIMEOUT_S)
            stream.region(runner, list(arena.slots)[:1], FIRST_CALL_TIMEOUT_S, self.chance(), restore=True)
            return conduct.flags(runner, FIRST_CALL_TIMEOUT_S)
        finally:
            runner.kill()

    def _measure(self, trial: Trial) -> Measurement | None:
        assert self.ring is not None
        assert trial.runner is not None
        effort = trial.job.effort
        session = timing.Session(self.ring, self.clock, effort, self.baselines.runners, trial.runner, self.chance())
        known = [v for v in (trial.job.incumbent_ms_over_eager, self.best_over_eager) if v is not None]
        measurement = session.run(trial.checks, min(known, default=None), self.baselines.failed)
        if measurement is None:
            return None
        trial.checks += conduct.report(trial.runner, effort.timeout_s)
        if self._flags is not None:
            trial.checks.append(conduct.same_flags(self._flags, conduct.flags(trial.runner, effort.timeout_s)))
        aside = session.aside(measurement)
        for _ in range(effort.pairs - 1):
            if measurement is not None and pairs.looks_like_gain(measurement):
                measurement = self._again(trial, measurement)
        if measurement is None:
            return None
        if "eager" in measurement.baselines:
            over_eager = measurement.candidate.median_ms / measurement.baselines["eager"].median_ms
            self.best_over_eager = min(self.best_over_eager or over_eager, over_eager)
        light, check = self.light.judge(measurement.candidate.median_ms)
        trial.checks += [] if check is None else [check]
        warm, replay_ms = aside
        return dataclasses.replace(measurement, speed_of_light=light, warm=warm, graph_replay_ms=replay_ms)

    def _again(self, trial: Trial, measurement: Measurement) -> Measurement | None:
        """Time the candidate once more beside eager, both in fresh processes."""
        assert self.ring is not None
        effort = trial.job.effort
        fields = self._load_fields(self.reference_file, "Model")
        eager = Baselines(self.zygote, (pairs.OVER,), fields, self.cache)
        runner = self.spawn(Phase.RUN, trial.job.candidate)
        try:
            self.load(runner, trial.job)
            self._warm_up(eager, [pairs.OVER])
            for name, why in eager.failed.items():
                raise EnvironmentFault(f"{name} ran, and fails in a fresh process: {why}")
            session = timing.Session(self.ring, self.clock, effort, eager.runners, runner, self.chance())
            other = session.run(trial.checks, None, {})
            trial.checks += [c for c in conduct.report(runner, effort.timeout_s) if not c.passed]
        finally:
            runner.kill()
            eager.close()
        return None if other is None else pairs.merged(measurement, other)

    def load(self, runner: Runner, job: Job, *, inspect: bool = False, profile: bool = False) -> None:
        """Let a process that was spawned import and build the candidate; what looks into it is installed before."""
        candidate = job.candidate
        path = runner.home / f"candidate_{candidate.hash[:12]}.py"
        path.write_text(candidate.source)
        init = runner.home / "init.pkl"
        init.write_bytes(self.init_file.read_bytes())
        caches = building.caches(candidate, self.cache)
        fields = self._load_fields(path, "ModelNew") | {
            "environment": caches,
            "init": str(init),
            "inspect": inspect,
            "profile": profile,
        }
        runner.answer(building.timeout_s(job))  # to `start`
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
            **flags(self.precision),
            "compile_mode": None,
            "inspect": False,
            "environment": {},
        }

    def _prepare_baselines(self) -> None:
        with self._one_at_a_time:
            self._warm_up(self.baselines, self.job.baselines)

    def _warm_up(self, baselines: Baselines, names: Iterable[str]) -> None:
        """Wait until baselines have loaded; give each named one the present parameters and an untimed call."""
        assert self.ring is not None
        ring = self.ring

        def warm(runner: Runner) -> None:
            ring.arena.load_state(runner, FIRST_CALL_TIMEOUT_S)
            stream.region(runner, ring.slots[:1], FIRST_CALL_TIMEOUT_S, self.chance(), restore=True)

        for name in baselines.ready():
            baselines.try_call(name, lambda runner: connect(runner, [ring.arena]))
        for name in names:
            if name in baselines.runners and baselines.knows.get(name) != self.seed:
                baselines.knows[name] = self.seed
                baselines.try_call(name, warm)

    @staticmethod
    def chance() -> random.Random:
        """What decides which calls are compared: from the operating system, so that no candidate can know it."""
        return random.Random(random.SystemRandom().getrandbits(64))

    def close(self) -> None:
        """End every process, and free the shared memory."""
        self._background.shutdown()
        self.baselines.close()
        if self.lanes is not None:
            self.lanes.close()
        if self.ring is not None:
            self.ring.arena.block.close()
        self.files.cleanup()


def bench_key(job: Job) -> tuple[Any, ...]:
    """What two jobs must share to be evaluated on the same bench; the seed may differ."""
    return job.problem.hash, job.device, job.precision, job.baselines
