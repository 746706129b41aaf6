"""What a finished run found, read back from the archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.stages.archive import CONFIRM, SEARCH, Archive, Record
from kernelwright.stages.measure.stats import is_gain


@dataclass(frozen=True)
class Outcome:
    """The records of a run, and which of them counts."""

    searched: tuple[Record, ...]
    """Every judged candidate, in the order of proposal."""
    confirmed: tuple[Record, ...]
    """Second measurements, on fresh inputs."""
    winner: Record | None
    """The fastest second measurement whose interval's lower end is a gain over eager; None when there is none."""

    @property
    def best_seen(self) -> Record | None:
        """The winner; else the fastest second measurement, or the fastest of the search: what an honest 'no' shows."""
        return self.winner or fastest(self.confirmed) or fastest(self.searched)


def outcome(archive: Archive, run: str) -> Outcome:
    """Read a run's records and pick its winner."""
    searched = tuple(archive.results_of(run, SEARCH))
    confirmed = tuple(archive.results_of(run, CONFIRM))
    return Outcome(searched, confirmed, fastest([r for r in confirmed if _gains(r)]))


def over_eager(record: Record) -> float | None:
    """The median speedup over eager of a record that was measured to the end."""
    measurement = record.result.measurement
    if measurement is None or measurement.screened_out or "eager" not in measurement.speedups:
        return None
    return measurement.speedups["eager"].median


def fastest(records: Sequence[Record]) -> Record | None:
    """The record with the largest speedup over eager."""
    measured = [(speed, r) for r in records if (speed := over_eager(r)) is not None]
    return max(measured, key=lambda pair: pair[0])[1] if measured else None


def _gains(record: Record) -> bool:
    measurement = record.result.measurement
    return measurement is not None and "eager" in measurement.speedups and is_gain(measurement.speedups["eager"])
