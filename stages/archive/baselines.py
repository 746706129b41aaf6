"""Times of references by themselves: stored by problem, device, versions and precision, the latest of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.archive.database import writing
from kernelwright.stages.archive.models import BaselineRow
from kernelwright.stages.archive.store import Archive
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.types import Environment, Ratio, Timing


@dataclass(frozen=True)
class Baseline:
    """The reference, run one way."""

    name: str
    """`eager`, `compile` or `max-autotune`."""
    timing: Timing
    over_eager: Ratio | None
    """Eager's time over this one's; None for eager itself."""


def store(
    archive: Archive, problem: Problem, where: Environment, precision: Precision, baselines: Iterable[Baseline]
) -> None:
    """Keep these times; an earlier one of the same problem, device, versions, precision and name goes."""
    with Session(writing(archive.engine)) as session, session.begin():
        for baseline in baselines:
            session.merge(
                BaselineRow(
                    problem_hash=problem.hash,
                    device_name=where.device_name,
                    driver=where.driver,
                    torch=where.torch,
                    triton=where.triton,
                    precision=precision.value,
                    name=baseline.name,
                    problem_name=problem.name,
                    shape=problem.shape,
                    median_ms=baseline.timing.median_ms,
                    timing=to_json(baseline.timing),
                    over_eager=None if baseline.over_eager is None else to_json(baseline.over_eager),
                    environment=to_json(where),
                    created_at=datetime.now(UTC),
                )
            )


def find(archive: Archive, problem_hash: str, where: Environment, precision: Precision) -> dict[str, Baseline]:
    """What is stored of a problem for this device and these versions, by name."""
    wanted = select(BaselineRow).where(
        BaselineRow.problem_hash == problem_hash,
        BaselineRow.device_name == where.device_name,
        BaselineRow.driver == where.driver,
        BaselineRow.torch == where.torch,
        BaselineRow.triton == where.triton,
        BaselineRow.precision == precision.value,
    )
    with Session(archive.engine) as session:
        return {row.name: _baseline(row) for row in session.scalars(wanted)}


def _baseline(row: BaselineRow) -> Baseline:
    ratio = None if row.over_eager is None else from_json(Ratio, row.over_eager)
    return Baseline(row.name, from_json(Timing, row.timing), ratio)
