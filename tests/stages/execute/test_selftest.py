"""The self-test: what it runs, what it counts, and what becomes of a machine that cannot judge."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.hacks import cases
from kernelwright.stages.execute.job import Job, JobResult, Progress
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.execute.selftest import QUICK, SelftestRow, Tally, choose, line, run, tally, write_results
from kernelwright.stages.types import Environment, Status


def row(expected: str, status: Status, name: str = "some_case") -> SelftestRow:
    return SelftestRow(name, "caching", "accept" if expected == "accept" else "reject", 0, status, "why", 0.1, None)


def test_the_quick_cases_are_one_task_and_hold_both_answers() -> None:
    chosen = choose("cpu", quick=True)
    assert [case.id for case in chosen] == list(QUICK)
    assert {case.expected for case in chosen} == {"reject", "accept"}
    assert len({case.problem.hash for case in chosen}) == 1
    assert choose("cuda", quick=True) == chosen


def test_a_device_gets_the_cases_that_run_on_it() -> None:
    cpu, cuda = ({case.id for case in choose(device)} for device in ("cpu", "cuda"))
    assert cpu | cuda == {case.id for case in cases()}
    assert "ok_triton_autotune" in cuda - cpu
    assert "ok_cpp_kernel" in cpu - cuda


@pytest.mark.parametrize(
    ("ids", "message"), [(["nope"], "no case 'nope'"), (["ok_triton_autotune"], "runs on cuda only, not on cpu")]
)
def test_what_cannot_be_chosen(ids: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose("cpu", ids)


@pytest.mark.parametrize("status", Status)
def test_only_correct_accepts_and_what_was_not_judged_is_neither(status: Status) -> None:
    judged = status not in (Status.ENV_ERROR, Status.UNKNOWN)
    assert row("reject", status).as_expected == (judged and status is not Status.CORRECT)
    assert row("accept", status).as_expected == (status is Status.CORRECT)


def test_the_rates() -> None:
    rows = [
        row("reject", Status.INCORRECT),
        row("reject", Status.TAMPERED),
        row("reject", Status.CORRECT),
        row("reject", Status.ENV_ERROR),
        row("accept", Status.CORRECT),
    ]
    assert tally(rows, "reject") == Tally(right=2, judged=3, not_judged=1)
    assert tally(rows, "reject").percent == pytest.approx(66.667, abs=0.01)
    assert tally(rows, "accept").percent == 100.0
    assert tally([], "accept").percent == 0.0
    assert [line(r).split()[0] for r in rows] == ["ok", "ok", "WRONG", "not", "ok"]


def test_the_real_referee_on_the_quick_cases_twice(tmp_path: Path) -> None:
    rows = list(
        run(choose("cpu", quick=True), "cpu", lambda: LocalExecutor(tmp_path / "c", tmp_path / "log"), repeats=2)
    )
    assert sorted((r.id, r.repeat) for r in rows) == sorted((name, i) for name in QUICK for i in (0, 1))
    assert [r for r in rows if not r.as_expected] == []
    assert all(r.environment is not None for r in rows)


def test_the_rates_are_written_as_measured_figures(tmp_path: Path) -> None:
    where = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)
    rows = [replace(r, environment=where) for r in (row("reject", Status.CRASH), row("accept", Status.INCORRECT))]
    out = tmp_path / "referee.json"
    other = replace(where, device_name="NVIDIA H200")
    write_results(out, [replace(r, environment=other) for r in rows], "there")
    write_results(out, rows, "before")
    write_results(out, rows, "here")
    found = [(r["metric"], r["device"], r["value"], r["n"], r["command"]) for r in json.loads(out.read_text())]
    assert found == [
        ("hacks.honest_accepted", "NVIDIA H200", 0.0, 1, "there"),
        ("hacks.honest_accepted", "a processor", 0.0, 1, "here"),
        ("hacks.refused", "NVIDIA H200", 100.0, 1, "there"),
        ("hacks.refused", "a processor", 100.0, 1, "here"),
    ]
    with pytest.raises(EnvironmentFault, match="no candidate was judged"):
        write_results(out, [row("reject", Status.ENV_ERROR)], "nowhere")


class Lost:
    """An executor whose worker ends after its first result."""

    def __init__(self, real: LocalExecutor, closed: list[str]) -> None:
        self.real = real
        self.closed = closed

    def run(self, jobs: Iterable[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        yield next(self.real.run(list(jobs)[:1], on_progress))
        raise EnvironmentFault("the worker ended unexpectedly")

    def close(self) -> None:
        self.closed.append("closed")
        self.real.close()


def test_a_lost_worker_costs_its_task_and_the_next_task_gets_another(tmp_path: Path) -> None:
    closed: list[str] = []
    chosen = choose("cpu", ["cache_data_ptr", "cache_shape", "forge_recycled_output"])
    rows = list(run(chosen, "cpu", lambda: Lost(LocalExecutor(tmp_path / "c", tmp_path / "log"), closed)))
    assert [(r.id, r.status) for r in rows] == [
        ("cache_data_ptr", Status.INCORRECT),
        ("forge_recycled_output", Status.ENV_ERROR),
        ("cache_shape", Status.INCORRECT),
    ]
    assert not rows[1].as_expected
    assert closed == ["closed", "closed"]
