"""Profile one candidate: climb from what the compiler made, over torch's profiler, to hardware counters.

Every tier works in confined processes, like any call of a candidate. What a tier cannot give is a line in the profile;
the next one is used. Nothing here can make a verdict better: a candidate that runs gets `unknown`, one that does not
the verdict of its failure.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.stages.compile import build_folder
from kernelwright.stages.execute import building, timing
from kernelwright.stages.execute.job import Job, JobResult
from kernelwright.stages.profile import ncu, static, torchprof
from kernelwright.stages.profile.interpret import interpret
from kernelwright.stages.profile.plain import words
from kernelwright.stages.profile.report import KernelCode, KernelCounters, KernelTime, Profile, Tier
from kernelwright.stages.sandbox import stream
from kernelwright.stages.sandbox.arena import Arena, connect
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Backend, Compilation, Environment, SpeedOfLight, Status, Verdict
from kernelwright.stages.verify import gate

if TYPE_CHECKING:
    from kernelwright.stages.execute.bench import Bench

COUNTERS_TIMEOUT_S = 60.0
"""ncu imports torch, and runs each kernel once for every few metrics."""
GRACE_S = 10.0
REGIONS = 3
"""Timed regions of the candidate alone: it is advice, no measurement."""
NOT_JUDGED = "profiled, not judged"
"""Why the verdict of a candidate that runs is `unknown`."""


@dataclass
class Climb:
    """What the tiers have given so far."""

    kernels: tuple[KernelTime, ...] = ()
    counters: tuple[KernelCounters, ...] = ()
    code: tuple[KernelCode, ...] = ()
    watched_ms: float | None = None
    call_ms: float | None = None
    light: SpeedOfLight | None = None
    missing: dict[str, str] = field(default_factory=dict)
    failure: RunnerFailed | None = None

    def try_tier(self, tier: Tier, give: Callable[[], Any]) -> Any:
        """What the tier gives; None, and the reason kept, where it gives nothing or what cannot be read."""
        try:
            return give()
        except RunnerFailed as failure:
            self.missing[tier.value] = _in_a_line(failure)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.missing[tier.value] = f"its answer cannot be read: {error}"
        return None

    def counted(self, runner: Runner, slot: int) -> tuple[KernelCounters, ...]:
        """The counters tier, or why there is none."""
        limit = COUNTERS_TIMEOUT_S
        answer = runner.ask("counters", limit + GRACE_S, slot=slot, limit_s=limit)
        return ncu.read(answer) if "missing" not in answer else self._none(Tier.NCU, answer)

    def code_of(self, runner: Runner, folder: Path, job: Job) -> tuple[KernelCode, ...]:
        """The static tier, or why there is none."""
        answer = runner.ask("disassemble", job.effort.timeout_s, folder=str(folder), device=job.device)
        return static.read(answer) if "missing" not in answer else self._none(Tier.STATIC, answer)

    def _none(self, tier: Tier, answer: Mapping[str, Any]) -> tuple[Any, ...]:
        self.missing[tier.value] = words(answer["missing"])
        return ()

    def fail(self, failure: RunnerFailed) -> None:
        """The candidate does not run: no tier that calls it has anything to say."""
        self.failure = failure
        self.missing.setdefault(Tier.TORCH.value, _in_a_line(failure))

    def profile(self, job: Job, environment: Environment) -> Profile:
        """All of it, interpreted."""
        by_tier = {Tier.NCU: self.counters, Tier.TORCH: self.kernels, Tier.STATIC: self.code}
        found = Profile(
            candidate_hash=job.candidate.hash,
            device=job.device,
            device_name=environment.device_name,
            tier=next((tier for tier, figures in by_tier.items() if figures), None),
            missing=self.missing,
            call_ms=self.call_ms,
            watched_ms=self.watched_ms,
            kernels=self.kernels,
            counters=self.counters,
            code=self.code,
            speed_of_light=self.light,
        )
        return dataclasses.replace(found, finding=interpret(found))


def _in_a_line(failure: RunnerFailed) -> str:
    return words(f"{failure.kind}: {next(iter(failure.message.splitlines()), '')}")


def profile(bench: Bench, job: Job, compilation: Compilation, on_stage: Callable[[str], None]) -> JobResult:
    """Profile a compiled candidate on its problem's bench. Whatever it does is a value, never an exception."""
    on_stage("profile")
    start = time.monotonic()
    climb = Climb()
    if compilation.ok:
        triton = job.candidate.backend is Backend.TRITON and job.device == "cuda"
        building.make_folders(job.candidate, bench.cache, bench.triton_driver() if triton else None)
        try:
            _watched(bench, job, climb)
            _timed(bench, job, climb)
        except RunnerFailed as failure:
            climb.fail(failure)
        _disassembled(bench.zygote, job, bench.cache, climb)
    return _result(job, compilation, climb, bench.environment, time.monotonic() - start)


def _watched(bench: Bench, job: Job, climb: Climb) -> None:
    """Build the candidate in a process that is thrown away, and look at what one call runs."""
    assert bench.lanes is not None
    limit = building.timeout_s(job)
    runner = bench.spawn(Phase.BUILD, job.candidate)
    try:
        with bench.lanes.one() as arenas:
            with bench.lock.shared():
                bench.load(runner, job, profile=True)
                slot = _first_call(bench, runner, arenas[""], limit)
            with bench.lock.exclusive():
                watched = climb.try_tier(Tier.TORCH, lambda: torchprof.read(runner.ask("profile", limit, slot=slot)))
                climb.kernels, climb.watched_ms = watched or ((), None)
                if bench.no_counters:
                    climb.missing[Tier.NCU.value] = bench.no_counters
                elif job.device == "cuda":
                    climb.counters = climb.try_tier(Tier.NCU, lambda: climb.counted(runner, slot)) or ()
                    reason = climb.missing.get(Tier.NCU.value, "")
                    bench.no_counters = reason if ncu.lasting(reason) else ""
    finally:
        with bench.lock.shared():
            runner.kill()


def _first_call(bench: Bench, runner: Runner, arena: Arena, limit: float) -> int:
    """Connect the runner, and call it once on ordinary values; the slot that holds them."""
    case = next(case for case, _ in bench.cases if not (case.layout or case.stressed))
    slot = next(iter(arena.slots))
    arena.write_state(case)
    arena.write_slot(slot, case)
    connect(runner, [arena])
    arena.load_state(runner, limit)
    stream.begin(runner, limit, restore=True)
    stream.call(runner, [[slot]], limit)
    return slot


def _timed(bench: Bench, job: Job, climb: Climb) -> None:
    """Time the candidate by itself, with nothing that looks at it, and compare that with the device's limits."""
    assert bench.ring is not None
    runner = bench.spawn(Phase.RUN, job.candidate)
    try:
        with bench.lock.shared():
            bench.load(runner, job)
        with bench.lock.exclusive():
            session = timing.Session(bench.ring, bench.clock, job.effort, {}, runner, bench.chance())
            climb.call_ms = session.alone(REGIONS).median_ms
            climb.light, _ = bench.light.judge(climb.call_ms)
    finally:
        with bench.lock.shared():
            runner.kill()


def _disassembled(zygote: Zygote, job: Job, cache: Path, climb: Climb) -> None:
    """Read the files that compilers have left, in a process that has never loaded the candidate."""
    folder = build_folder(job.candidate, cache).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    runner = zygote.spawn(Phase.BUILD, [folder])

    try:
        climb.code = climb.try_tier(Tier.STATIC, lambda: climb.code_of(runner, folder.resolve(), job)) or ()
    finally:
        runner.kill()


def without_device(job: Job, compilation: Compilation, zygote: Zygote, cache: Path) -> JobResult:
    """The static tier alone, of what was compiled for a GPU that is not here."""
    start = time.monotonic()
    climb = Climb(missing=dict.fromkeys((Tier.NCU.value, Tier.TORCH.value), "no CUDA device here"))
    if compilation.ok:
        _disassembled(zygote, job, cache, climb)
    target = next((r.target for r in compilation.resources), "no device")
    environment = Environment("cuda", f"none; compiled for {target}", "", "", "", "", 0)
    return _result(job, compilation, climb, environment, time.monotonic() - start)


def _result(job: Job, compilation: Compilation, climb: Climb, environment: Environment, seconds: float) -> JobResult:
    if not compilation.ok:
        verdict = Verdict(Status.COMPILE_ERROR, compilation.log)
    elif climb.failure is not None:
        verdict = gate.verdict_of(climb.failure)
    else:
        verdict = Verdict(Status.UNKNOWN, NOT_JUDGED)
    return JobResult(
        key=job.key,
        candidate_hash=job.candidate.hash,
        verdict=verdict,
        environment=environment,
        compilation=compilation,
        seconds={"compile": compilation.seconds, "profile": seconds},
        profile=climb.profile(job, environment),
    )
