"""`kernelwright baseline`: time the reference by itself, and keep the times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath, Json, emit
from kernelwright.stages.execute import scratch

if TYPE_CHECKING:
    from kernelwright.kernelbench.problem import Precision, Problem
    from kernelwright.stages.archive.baselines import Baseline
    from kernelwright.stages.execute.job import JobResult
    from kernelwright.stages.types import Environment

SCHEMA = "kernelwright.baseline/1"
AGAIN = "eager again"
"""The reference beside itself: how far from 1 is no difference, here and now."""

app = typer.Typer()


@app.command()
def baseline(
    problem: Annotated[str, typer.Argument(help="A file, or a problem of a suite such as core/softmax.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    shape: Annotated[str | None, typer.Option(help="A label of the problem's SHAPES.")] = None,
    inputs: Annotated[str | None, typer.Option(help="With file.py:ClassName: forward's arguments.")] = None,
    init: Annotated[str | None, typer.Option(help="With file.py:ClassName: the constructor's arguments.")] = None,
    modes: Annotated[
        str, typer.Option(help="Ways to run it, separated by commas: eager, compile, max-autotune.")
    ] = "eager,compile",
    precision: Annotated[
        str | None, typer.Option(help="strict, tf32 or task; what the problem's PRECISION says otherwise.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; each gives one sample of each way.")] = 30,
    seed: Annotated[int, typer.Option(help="Of parameters and inputs.")] = 0,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    json: Json = False,
) -> None:
    """Time a module as it is: eager, compiled and autotuned, interleaved; keep the times in the archive.

    They are stored by the problem's hash, the device, its driver, and the versions of torch and triton.
    """
    from kernelwright.kernelbench.sources import from_spec

    loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
    names = _names(modes)
    terms = _precision(precision, loaded)
    result = _measured(loaded, device, names, terms, rounds, seed)
    found = _baselines(result)
    stored = [b for b in found if b.name != AGAIN]
    from kernelwright.stages.archive import Archive
    from kernelwright.stages.archive.baselines import store

    with Archive.open(archive) as opened:
        store(opened, loaded, result.environment, terms, stored)
    missing = [name for name in names if name not in {b.name for b in found}]
    _show(loaded, result, found, missing, archive, to_stderr=json)
    if json:
        emit(_as_json(loaded, result.environment, terms, found, missing, archive))


def _names(modes: str) -> tuple[str, ...]:
    from kernelwright.kernelbench.errors import UsageError
    from kernelwright.stages.measure.baselines import MODES

    names = tuple(dict.fromkeys(name.strip() for name in modes.split(",") if name.strip()))
    unknown = [name for name in names if name not in MODES]
    if unknown or not names:
        raise UsageError(f"--modes {modes}: choose from {', '.join(MODES)}")
    return names


def _precision(name: str | None, problem: Problem) -> Precision:
    from kernelwright.kernelbench import contract
    from kernelwright.kernelbench.errors import UsageError
    from kernelwright.kernelbench.problem import Precision

    if name is None:
        return contract.load(problem).precision
    if name not in list(Precision):
        raise UsageError(f"--precision {name}: choose from {', '.join(Precision)}")
    return Precision(name)


def _measured(
    problem: Problem, device: str, names: tuple[str, ...], precision: Precision, rounds: int, seed: int
) -> JobResult:
    """The reference, evaluated as its own candidate beside the ways that were asked for."""
    from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
    from kernelwright.stages.execute import reference
    from kernelwright.stages.execute.job import Effort
    from kernelwright.stages.execute.local import LocalExecutor
    from kernelwright.stages.types import Status

    effort = Effort(screen_rounds=0, rounds=rounds)
    job = reference.job(problem, device, seed, baselines=names, precision=precision, effort=effort)
    with scratch.folder("baseline") as folder:
        executor = LocalExecutor(folder / "cache", folder / "worker.log")
        try:
            (result,) = executor.run([job], lambda progress: print(f"{progress.stage} ...", file=sys.stderr))
        finally:
            executor.close()
    verdict = result.verdict
    if verdict.status in (Status.ENV_ERROR, Status.OOM):
        raise EnvironmentFault(f"{problem.origin}: {verdict.message}")
    if result.measurement is None:
        raise UsageError(
            f"{problem.origin}: it cannot be timed: beside itself the referee finds it {verdict.status}: "
            f"{verdict.message.splitlines()[0] if verdict.message else 'no reason given'}"
        )
    return result


def _baselines(result: JobResult) -> list[Baseline]:
    """Each way's times, and the reference's own once more."""
    from kernelwright.stages.archive.baselines import Baseline
    from kernelwright.stages.measure.stats import speedup

    assert result.measurement is not None
    eager = result.measurement.baselines.get("eager")
    times = {**result.measurement.baselines, AGAIN: result.measurement.candidate}
    return [
        Baseline(
            name,
            timing,
            speedup(eager.samples_ms, timing.samples_ms) if eager is not None and name != "eager" else None,
        )
        for name, timing in times.items()
    ]


def _show(
    problem: Problem, result: JobResult, found: list[Baseline], missing: list[str], archive: Path, *, to_stderr: bool
) -> None:
    from kernelwright.agent.ui.table import Column, plain
    from kernelwright.agent.ui.view import ratio_text

    assert result.measurement is not None
    out = sys.stderr if to_stderr else sys.stdout
    shape = f" (shape {problem.shape})" if problem.shape else ""
    where = result.environment
    driver = f", driver {where.driver}" if where.driver else ""
    print(f"{problem.name}{shape} on {where.device_name}, torch {where.torch}{driver}", file=out)
    rows = [
        [b.name, f"{b.timing.median_ms:.4g}", ratio_text(b.over_eager) if b.over_eager is not None else ""]
        for b in found
    ]
    rows += [[name, "", "not to be had"] for name in missing]
    for line in plain([Column("how"), Column("ms", right=True), Column("over eager (95 %)")], rows):
        print(f"  {line}", file=out)
    print(f"  {_control(next(b for b in found if b.name == AGAIN))}", file=out)
    print(result.measurement.method, file=out)
    print(f"stored in {archive}", file=out)


def _control(again: Baseline) -> str:
    """What the reference beside itself says about this measurement."""
    from kernelwright.stages.measure.stats import MEANINGFUL

    ratio = again.over_eager
    if ratio is None or (ratio.low <= MEANINGFUL and ratio.high >= 1 / MEANINGFUL):
        return f"{AGAIN} is the same module in another process: so far apart can equal things be here"
    return (
        f"{AGAIN} is the same module in another process, and seems {abs(ratio.median - 1):.0%} "
        f"{'faster' if ratio.median > 1 else 'slower'}: this machine is not quiet, and other rows may be off as far"
    )


def _as_json(
    problem: Problem,
    where: Environment,
    precision: Precision,
    found: list[Baseline],
    missing: list[str],
    archive: Path,
) -> dict[str, Any]:
    from kernelwright.stages.codec import to_json

    return {
        "schema": SCHEMA,
        "problem": {"name": problem.name, "hash": problem.hash, "shape": problem.shape},
        "environment": to_json(where),
        "precision": precision.value,
        "baselines": {b.name: to_json(b) for b in found if b.name != AGAIN},
        "same_again": to_json(next(b for b in found if b.name == AGAIN)),
        "missing": missing,
        "archive": str(archive),
    }
