"""Candidates that are handed in to a run: judged once, stored once, whoever hands them in and however often."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.agent.run import Opened, look_up, open_new, walk
from kernelwright.agent.submission import Submission, submit, submitted
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.archive import SEARCH, Archive
from kernelwright.stages.archive.submissions import OUTSIDE, add_submission
from kernelwright.stages.execute.job import JobResult, Progress
from kernelwright.stages.execute.recorded import RecordedExecutor
from kernelwright.stages.types import Backend, Candidate, Environment, Measurement, Ratio, Status, Timing, Verdict
from tests.agent import recorded_run

MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)


def ignore(event: object) -> None:
    pass


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return open_new(recorded_run.PROBLEM, recorded_run.settings(tmp_path))


def handed_in(name: str) -> Candidate:
    return submitted(f"# {name}", f"note of {name}", Backend.CPP)


def correct(of: Candidate, speedup: float, key: str = "search") -> JobResult:
    timing = Timing((1.0 / speedup,) * 5, 1.0 / speedup, 7)
    ratio = Ratio(speedup, speedup - 0.05, speedup + 0.05)
    measurement = Measurement(timing, {"eager": Timing((1.0,) * 5, 1.0, 7)}, {"eager": ratio}, "recorded")
    return JobResult(key, of.hash, Verdict(Status.CORRECT), MACHINE, measurement=measurement)


def failed(of: Candidate, status: Status) -> JobResult:
    return JobResult("search", of.hash, Verdict(status, "off by one"), MACHINE)


class Counting(RecordedExecutor):
    """Also counts what was run."""

    def __init__(self, recorded: Sequence[JobResult]) -> None:
        super().__init__(recorded)
        self.ran: list[str] = []

    def run(self, jobs, on_progress):  # type: ignore[no-untyped-def]
        batch = list(jobs)
        self.ran += [job.key for job in batch]
        return super().run(batch, on_progress)


def test_a_candidate_is_judged_once_however_often_it_is_handed_in(opened: Opened) -> None:
    wrong = handed_in("wrong")
    executor = Counting([failed(wrong, Status.INCORRECT)])
    stages: list[Progress] = []
    first = submit(opened, wrong, executor, stages.append)
    again = submit(opened, replace(wrong, directive="another note"), executor, ignore)
    assert (first.new, again.new) == (True, False)
    assert first.result == again.result
    assert first.place == again.place
    assert (first.place.generation, first.place.slot) == (OUTSIDE, 0)
    assert len(executor.ran) == 1
    assert stages
    with Archive.open(opened.settings.archive) as archive:
        (record,) = archive.results_of(opened.run, SEARCH)
    assert record.candidate == wrong
    assert record.result.verdict == Verdict(Status.INCORRECT, "off by one")


def test_what_would_be_the_winner_is_measured_again_and_the_reports_say_so(opened: Opened) -> None:
    slow, fast, slower = handed_in("slow"), handed_in("fast"), handed_in("slower")
    confirmed = [correct(slow, 1.4, "search/confirm"), correct(fast, 1.9, "search/confirm")]
    executor = Counting([correct(slow, 1.5), correct(fast, 2.0), correct(slower, 1.2), *confirmed])
    found = [submit(opened, candidate, executor, ignore) for candidate in (slow, fast, slower)]
    assert [s.winner for s in found] == [True, True, False]
    assert [s.confirmed is not None for s in found] == [True, True, False]
    assert [key.endswith("/confirm") for key in executor.ran] == [False, True, False, True, False]
    assert found[1].counts.measurement is not None
    assert found[1].counts.measurement.speedups["eager"].median == 1.9
    assert (opened.folder / "best_model.py").read_text() == fast.source
    assert "note of fast" in (opened.folder / "report.html").read_text()


def test_a_confirmation_that_a_kill_prevented_is_made_when_it_is_handed_in_again(opened: Opened) -> None:
    fast = handed_in("fast")
    result = correct(fast, 2.0)
    with Archive.open(opened.settings.archive) as archive:
        add_submission(archive, opened.run, fast)
        archive.add_result(opened.run, result)
    executor = Counting([correct(fast, 1.9, "search/confirm")])
    found = submit(opened, fast, executor, ignore)
    assert not found.new
    assert found.winner
    assert len(executor.ran) == 1


@pytest.mark.parametrize("status", [Status.ENV_ERROR, Status.UNKNOWN])
def test_where_the_machine_failed_nothing_is_said_of_the_candidate(opened: Opened, status: Status) -> None:
    unlucky = handed_in("unlucky")
    with pytest.raises(EnvironmentFault, match=rf"no verdict \({status.value}\): off by one"):
        submit(opened, unlucky, RecordedExecutor([failed(unlucky, status)]), ignore)
    with Archive.open(opened.settings.archive) as archive:
        assert archive.results_of(opened.run, SEARCH) == []
    found = submit(opened, unlucky, RecordedExecutor([failed(unlucky, Status.INCORRECT)]), ignore)
    assert found.new


def test_every_candidate_gets_inputs_of_its_own(opened: Opened) -> None:
    seeds: list[int] = []

    class Seeds(RecordedExecutor):
        def run(self, jobs, on_progress):  # type: ignore[no-untyped-def]
            batch = list(jobs)
            seeds.extend(job.seed for job in batch)
            return super().run(batch, on_progress)

    for name in ("one", "two"):
        submit(opened, handed_in(name), Seeds([failed(handed_in(name), Status.INCORRECT)]), ignore)
    assert len({*seeds, opened.settings.seed}) == 3


def test_a_search_goes_on_beside_what_was_handed_in(opened: Opened) -> None:
    mine = handed_in("mine")
    confirmed = correct(mine, 1.1, "search/confirm")
    submit(opened, mine, RecordedExecutor([correct(mine, 1.1), confirmed]), ignore)
    walk(opened, ignore, RecordedExecutor([*recorded_run.recorded(), confirmed]))
    with Archive.open(opened.settings.archive) as archive:
        found = archive.results_of(opened.run, SEARCH)
        places = archive.proposals(opened.run)
    assert found[0].candidate.hash == mine.hash
    assert len(found) == opened.settings.max_candidates
    assert len({candidate.hash for _, candidate in places}) == len(places) == len(found)
    _, status = look_up(opened.run, opened.settings.archive)
    assert status == "done"
    late = handed_in("late")
    assert submit(opened, late, RecordedExecutor([failed(late, Status.CRASH)]), ignore).place.slot == 1


def test_what_the_search_proposed_keeps_its_place(opened: Opened) -> None:
    mine = handed_in("mine")
    with Archive.open(opened.settings.archive) as archive:
        archive.add_proposals(opened.run, 0, [handed_in("first"), mine])
        place = add_submission(archive, opened.run, mine)
    assert (place.generation, place.slot) == (0, 1)


def test_a_run_that_is_not_there_is_named(opened: Opened) -> None:
    with pytest.raises(UsageError, match="no run elsewhere in this archive"):
        look_up("elsewhere", opened.settings.archive)
    with pytest.raises(UsageError, match="no run elsewhere in this archive"):
        submit(replace(opened, run="elsewhere"), handed_in("mine"), RecordedExecutor([]), ignore)


NAMES = ("a", "b", "c", "d")


@settings(max_examples=10)
@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=4), min_size=2, max_size=4))
def test_each_acknowledged_candidate_is_in_the_archive_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, clients: list[list[str]]
) -> None:
    opened = open_new(recorded_run.PROBLEM, recorded_run.settings(tmp_path_factory.mktemp("run")))
    executor = RecordedExecutor([failed(handed_in(name), Status.INCORRECT) for name in NAMES])
    acknowledged: list[Submission] = []
    begin = threading.Barrier(len(clients))

    def client(names: list[str]) -> None:
        begin.wait()
        acknowledged.extend(submit(opened, handed_in(name), executor, ignore) for name in names)

    threads = [threading.Thread(target=client, args=(names,)) for names in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(acknowledged) == sum(map(len, clients))
    with Archive.open(opened.settings.archive) as archive:
        places = archive.proposals(opened.run)
        stored = [record.candidate.hash for record in archive.results_of(opened.run, SEARCH)]
    distinct = {handed_in(name).hash for names in clients for name in names}
    assert sorted(stored) == sorted(distinct)
    assert sorted(candidate.hash for _, candidate in places) == sorted(distinct)
    assert {s.place.slot for s in acknowledged} == set(range(len(distinct)))
    assert len({(s.candidate.hash, s.place.slot) for s in acknowledged}) == len(distinct)
