"""A bundle is written once, read anywhere, and goes on where it stopped."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.codec import to_json
from kernelwright.stages.execute import bundle
from kernelwright.stages.execute.job import Job, JobResult
from kernelwright.stages.types import Environment, Measurement, Ratio, Status, Timing, Verdict
from tests.stages.execute.softmax_jobs import PROBLEM, QUICK, job

MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)


def result(of: Job, speedup: float | None, screened: bool = False) -> JobResult:
    """None: the candidate is wrong."""
    if speedup is None:
        return JobResult(of.key, of.candidate.hash, Verdict(Status.INCORRECT, "off by one"), MACHINE)
    timing = Timing((1.0 / speedup,), 1.0 / speedup, 3)
    measurement = Measurement(timing, {}, {"eager": Ratio(speedup, speedup, speedup)}, "made up", screened)
    return JobResult(of.key, of.candidate.hash, Verdict(Status.CORRECT), MACHINE, measurement=measurement)


def lines(*results: JobResult) -> str:
    return "".join(json.dumps(to_json(r)) + "\n" for r in results)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bundle"
    assert bundle.write(made, [job("right"), job("wrong")]) == 2
    return made


def test_what_is_written_is_read_again(folder: Path) -> None:
    assert bundle.jobs(folder) == [job("right"), job("wrong")]
    assert bundle.results(folder) == []


def test_a_bundle_is_never_overwritten(folder: Path) -> None:
    with pytest.raises(UsageError, match="exists already; a bundle is never overwritten"):
        bundle.write(folder, [])
    assert len(bundle.jobs(folder)) == 2


def test_jobs_that_cannot_be_made_leave_no_folder(tmp_path: Path) -> None:
    broken = dataclasses.replace(job("right"), seed=object())
    with pytest.raises(TypeError):
        bundle.write(tmp_path / "bundle", [broken])
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_bundle_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs\.jsonl: No such file or directory; is .* a bundle made by"):
        bundle.jobs(tmp_path)


@pytest.mark.parametrize("line", ["{", "{}", "[1]", '{"key": "k", "unknown": 1}'])
def test_a_line_that_cannot_be_read_is_named(folder: Path, line: str) -> None:
    with (folder / bundle.JOBS).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UsageError, match=r"jobs\.jsonl:3: no job: "):
        bundle.jobs(folder)
    (folder / bundle.RESULTS).write_text(line + "\n" + lines(result(job("right"), 2.0)))
    with pytest.raises(UsageError, match=r"results\.jsonl:1: no result: "):
        bundle.results(folder)


@given(data=st.data())
def test_a_result_is_read_whole_or_not_at_all_wherever_a_kill_cut_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    first, second = result(job("right"), 2.0), result(job("wrong"), None)
    text = lines(first, second)
    cut = data.draw(st.integers(0, len(text)))
    (folder / bundle.RESULTS).write_text(text[:cut])
    whole = text[:cut].count("\n")
    assert bundle.results(folder) == [first, second][:whole]


def test_what_has_a_result_is_not_waiting() -> None:
    right, wrong = job("right"), job("wrong")
    assert bundle.waiting([right, wrong], {}) == [right, wrong]
    assert bundle.waiting([right, wrong], {right.key: result(right, 2.0)}) == [wrong]


def test_the_fastest_is_measured_again_once_all_are_judged() -> None:
    group = [job("right"), job("other"), job("wrong")]
    done = {j.key: result(j, s) for j, s in zip(group, [1.5, 2.5, None], strict=True)}
    (again,) = bundle.waiting(group, done)
    assert (again.key, again.candidate) == ("run/0/other/confirm", group[1].candidate)
    done[again.key] = result(again, 2.4)
    assert bundle.waiting(group, done) == []


def test_what_was_screened_out_or_wrong_is_not_measured_again() -> None:
    group = [job("right"), job("wrong")]
    done = {group[0].key: result(group[0], 9.0, screened=True), group[1].key: result(group[1], None)}
    assert bundle.fastest(done.values()) is None
    assert bundle.waiting(group, done) == []


def test_a_confirmation_has_fresh_inputs_more_rounds_and_no_screen() -> None:
    once = dataclasses.replace(job("right"), incumbent_ms_over_eager=0.5)
    again = bundle.confirmation(once)
    assert again.key == once.key + bundle.CONFIRM
    assert again.seed != once.seed
    assert again.effort == dataclasses.replace(QUICK, rounds=2 * QUICK.rounds, screen_rounds=0, pairs=2)
    assert again.incumbent_ms_over_eager is None
    assert (again.problem, again.candidate, again.baselines) == (PROBLEM, once.candidate, once.baselines)


def test_a_bundle_runs_within_its_time_goes_on_and_confirms_its_winner(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = folder / bundle.RESULTS
    assert bundle.run_bundle(folder, tmp_path / "cache", limit_s=0.0) == 4
    assert [r.key for r in bundle.results(folder)] == ["run/0/right"]
    assert "run the same command again to go on" in capsys.readouterr().err

    kept = results.read_bytes()
    results.write_bytes(kept + kept[: len(kept) // 2])
    assert bundle.run_bundle(folder, tmp_path / "cache", limit_s=None) == 0
    assert results.read_bytes().startswith(kept)
    found = {r.key: r for r in bundle.results(folder)}
    assert list(found) == ["run/0/right", "run/0/wrong", "run/0/right/confirm"]
    assert [r.verdict.status for r in found.values()] == [Status.CORRECT, Status.INCORRECT, Status.CORRECT]
    rounds = [len(r.measurement.candidate.samples_ms) for r in found.values() if r.measurement]
    # Twice as many to confirm it; and where that happens to look like a gain, as many again in fresh processes.
    assert rounds[0] == QUICK.rounds
    assert rounds[1] in (2 * QUICK.rounds, 4 * QUICK.rounds)
    # Another process may be timing on this machine, which is waited for and said.
    told = [line for line in capsys.readouterr().err.splitlines() if "waiting for the device" not in line]
    assert told[0].startswith("softmax run/0/wrong incorrect ")
    assert told[1].startswith("softmax run/0/right/confirm correct ")

    before = results.read_bytes()
    assert bundle.run_bundle(folder, tmp_path / "cache", limit_s=None) == 0
    assert results.read_bytes() == before
