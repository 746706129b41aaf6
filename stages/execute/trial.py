"""What becomes of one candidate while it is evaluated, and the result that follows from it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelwright.stages.execute.job import Job, JobResult
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed
from kernelwright.stages.types import Check, Compilation, Environment, Measurement, OwnWork, Status, Verdict
from kernelwright.stages.verify import gate


@dataclass
class Trial:
    """Filled step by step; nothing in it comes from the candidate but the bytes that were compared."""

    job: Job
    compilation: Compilation
    checks: list[Check] = field(default_factory=list)
    measurement: Measurement | None = None
    work: OwnWork | None = None
    builder: Runner | None = None
    """The process that is built and looked into, and thrown away; None where there is nothing to build."""
    runner: Runner | None = None
    """The process that is verified and timed."""
    failure: RunnerFailed | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether every check so far has."""
        return all(check.passed for check in self.checks)

    def end(self) -> None:
        """End the processes."""
        for runner in (self.builder, self.runner):
            if runner is not None:
                runner.kill()
        self.builder = self.runner = None

    @contextlib.contextmanager
    def took(self, stage: str) -> Iterator[None]:
        """Count the body's wall time to a stage."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - start

    def verdict(self) -> Verdict:
        """What follows: a failed check first, for it says more than the failure that it may have led to."""
        if not self.compilation.ok:
            return Verdict(Status.COMPILE_ERROR, self.compilation.log)
        if self.failure is None or not self.passes:
            return gate.verdict_from(self.checks)
        return gate.verdict_of(self.failure, self.checks)

    def result(self, environment: Environment) -> JobResult:
        """The job's result. A time without a correct verdict is not given."""
        verdict = self.verdict()
        correct = verdict.status is Status.CORRECT
        return JobResult(
            key=self.job.key,
            candidate_hash=self.job.candidate.hash,
            verdict=verdict,
            environment=environment,
            compilation=self.compilation,
            measurement=self.measurement if correct else None,
            work=self.work,
            seconds={"compile": self.compilation.seconds, **self.seconds},
        )
