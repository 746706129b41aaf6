"""Judge candidates that somebody hands in: read the files, make jobs, run them in a worker that leaves no trace."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.execute import scratch
from kernelwright.stages.execute.job import Effort, Job, JobResult, Progress
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.types import Backend, Candidate, Ratio, Status, Verdict
from kernelwright.stages.verify.source_form import read_form

if TYPE_CHECKING:
    from kernelwright.stages.execute.job import Executor

BASELINES = ("eager", "compile", "max-autotune")
"""What a candidate can be timed beside."""
DEFAULT_BASELINES = ("eager", "compile")

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Terms:
    """How candidates are judged. All of it is in the command that repeats a verdict."""

    device: str = "cpu"
    precision: Precision | None = None
    """None: what the problem says, else `strict`."""
    no_library: bool = False
    timed: bool = True
    baselines: tuple[str, ...] = DEFAULT_BASELINES
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(31))
    """Of the inputs; drawn anew unless given."""
    timeout_s: float = Effort.timeout_s

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise UsageError(f"device is {self.device!r}; use cpu or cuda")
        if unknown := [name for name in self.baselines if name not in BASELINES]:
            raise UsageError(f"no baseline {unknown[0]!r}; known: {', '.join(BASELINES)}")
        if not 0.0 < self.timeout_s < float("inf"):
            raise UsageError(f"the time limit is {self.timeout_s:g} s; it must be a positive number of seconds")

    def options(self) -> list[str]:
        """As they are typed; defaults are left out, the seed never."""
        default = Terms(seed=self.seed)
        words = ["--device", self.device] if self.device != default.device else []
        words += ["--precision", self.precision.value] if self.precision else []
        words += ["--no-library"] if self.no_library else []
        words += [] if self.timed else ["--no-time"]
        words += ["--baselines", ",".join(self.baselines)] if self.baselines != default.baselines else []
        words += ["--timeout", f"{self.timeout_s:g}"] if self.timeout_s != default.timeout_s else []
        return [*words, "--seed", str(self.seed)]


@dataclass(frozen=True)
class Verified:
    """One candidate's verdict with everything that was seen."""

    name: str
    """The candidate's file, or what stands for it."""
    problem: Problem
    job: Job
    result: JobResult
    command: str
    """Repeats it, with the same inputs; empty when the candidate or the reference is no file."""

    @property
    def verdict(self) -> Verdict:
        """The referee's word and the checks behind it."""
        return self.result.verdict

    @property
    def correct(self) -> bool:
        """Whether the candidate may be used."""
        return self.verdict.status is Status.CORRECT

    @property
    def speedup(self) -> Ratio | None:
        """Over eager; None unless it is correct and was timed beside eager."""
        measurement = self.result.measurement
        return measurement.speedups.get("eager") if measurement else None


def read_candidate(path: Path, backend: Backend | None) -> Candidate:
    """The candidate in a file; without a back end that of its source. Raises UsageError for what cannot be read."""
    try:
        source = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = {FileNotFoundError: "no such file", UnicodeDecodeError: "not UTF-8 text"}.get(
            type(error), getattr(error, "strerror", None) or str(error)
        )
        raise UsageError(f"{path}: {reason}") from None
    return candidate_of(source, backend)


def candidate_of(source: str, backend: Backend | None) -> Candidate:
    """A candidate of its source text."""
    return Candidate(source, backend or read_form(source).backend, proposer="given")


def judge(
    candidates: Sequence[tuple[str, Candidate]],
    problem: Problem,
    terms: Terms,
    watch: Watch,
    command: Callable[[str], str] = lambda name: "",
) -> Iterator[Verified]:
    """Judge named candidates of one problem in turn; each verdict comes as it is made.

    Raises UsageError for a problem that cannot be used, EnvironmentFault for a machine that cannot judge it.
    """
    with worker() as executor:
        executor.start()
        check(problem, terms.device)
        for name, candidate in candidates:
            yield verified(executor, name, candidate, problem, terms, watch, command(name))


def verified(
    executor: Executor,
    name: str,
    candidate: Candidate,
    problem: Problem,
    terms: Terms,
    watch: Watch,
    command: str = "",
) -> Verified:
    """Judge one candidate. Its problem has passed `check`."""
    job = job_of(f"given/{name}", candidate, problem, terms)
    return Verified(name, problem, job, with_own_name(judged(executor, job, watch), name), command)


def job_of(key: str, candidate: Candidate, problem: Problem, terms: Terms, rounds: int | None = None) -> Job:
    """The job that judges a candidate on these terms."""
    effort = Effort(timeout_s=terms.timeout_s, screen_rounds=0, detailed=True, pairs=2)
    return Job(
        key=key,
        problem=problem,
        candidate=candidate,
        device=terms.device,
        seed=terms.seed,
        effort=effort if rounds is None else replace(effort, rounds=rounds),
        baselines=terms.baselines if terms.timed else (),
        precision=terms.precision,
        no_library=terms.no_library,
        timed=terms.timed,
    )


def judged(executor: Executor, job: Job, watch: Watch) -> JobResult:
    """Run one job."""
    (result,) = executor.run([job], watch)
    return result


@contextmanager
def worker() -> Iterator[LocalExecutor]:
    """An executor whose caches and log lie in a temporary folder. What its log says of a fault goes into the fault."""
    with scratch.folder("verify") as folder:
        executor = LocalExecutor(cache=folder / "cache", log=folder / "worker.log")
        try:
            yield executor
        except EnvironmentFault as fault:
            raise with_last_words(fault, executor.log) from None
        finally:
            executor.close()


def with_last_words(fault: EnvironmentFault, log: Path) -> EnvironmentFault:
    """The fault; where it only points to the worker's log, which will not be kept, with what that log says last."""
    what, points, _ = str(fault).partition(f": see {log}")
    if not points:
        return fault
    said = log.read_text(errors="replace").strip().splitlines()
    return EnvironmentFault(f"{what}; its last words: {said[-1]}" if said else what)


def command_line(verb: str, candidates: Sequence[str], reference: Sequence[str], terms: Terms) -> str:
    """What to type for the same again. `reference` holds `--ref` and what belongs to it."""
    return shlex.join(["kernelwright", verb, *candidates, *reference, *terms.options()])


def check(problem: Problem, device: str) -> None:
    """Build the reference and call it once. Raises UsageError or EnvironmentFault in one line."""
    # Importing torch takes seconds: the worker imports it at the same time.
    from kernelwright.kernelbench import contract

    contract.check(problem, device)


_OUR_NAMES = re.compile(r"(?:/[^\s\"']*/)?\bcandidate(?:_[0-9a-f]{12})?\.py\b")
"""What the candidate's file is called where it is judged."""


def with_own_name(result: JobResult, name: str) -> JobResult:
    """The result with the candidate's file called as its author calls it."""
    verdict = result.verdict

    def renamed(text: str) -> str:
        return _OUR_NAMES.sub(lambda found: name, text)

    checks = tuple(replace(check, detail=renamed(check.detail)) for check in verdict.checks)
    return replace(result, verdict=replace(verdict, message=renamed(verdict.message), checks=checks))
