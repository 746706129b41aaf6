"""Stored calls of language models."""

from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.calls import (
    OK,
    OPEN,
    Place,
    Spending,
    Usage,
    answered,
    begin,
    calls_of_run,
    finish,
    spending_of,
)
from kernelwright.stages.translate.graph import Graph, OpInfo
from tests.stages.archive.old_schema import make

PROBLEM = Problem("doubling", "class Model: ...", "doubling.py")
INFO = OpInfo(Graph((), (), (), "single"), "mul[f32 r12]", "def forward(x): ...", 7, 4096, "export")
PLACE = Place("r", 1, 2)
WORST = Usage(1000, 0, 4000, estimated=True)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive.open(tmp_path / "archive.db")
    archive.add_problem(PROBLEM, INFO)
    archive.start_run("r", PROBLEM, "cpu", {})
    return archive


def answer(archive: Archive, call: int, reply: str = "a kernel", outcome: str = OK, cost: float | None = 0.01) -> None:
    finish(
        archive,
        call,
        prompt="short",
        reply=reply,
        outcome=outcome,
        message="",
        usage=Usage(800, 500, 300),
        cost_usd=cost,
        seconds=2.5,
        requests=2,
    )


def test_a_call_is_open_at_its_worst_until_its_reply_is_stored(archive: Archive) -> None:
    call = begin(archive, PLACE, "propose", "a-model", "long", WORST, 0.05)
    (stored,) = calls_of_run(archive, "r")
    assert (stored.outcome, stored.usage, stored.cost_usd) == (OPEN, WORST, 0.05)
    assert spending_of(archive, "r") == Spending(1, 5000, 0.05)
    assert answered(archive, PLACE, "propose") is None

    answer(archive, call)
    (stored,) = calls_of_run(archive, "r")
    assert (stored.prompt, stored.reply, stored.outcome) == ("short", "a kernel", OK)
    assert (stored.usage, stored.seconds, stored.requests) == (Usage(800, 500, 300), 2.5, 2)
    assert spending_of(archive, "r") == Spending(1, 1100, 0.01)
    assert answered(archive, PLACE, "propose") == stored


def test_only_the_same_place_and_role_has_the_reply(archive: Archive) -> None:
    answer(archive, begin(archive, PLACE, "propose", "a-model", "p", WORST, None))
    for place, role in (
        (PLACE, "diagnose"),
        (Place("r", 1, 3), "propose"),
        (Place("r", 2, 2), "propose"),
        (Place("r", 1, 2, attempt=1), "propose"),
    ):
        assert answered(archive, place, role) is None


def test_a_killed_call_and_a_failed_one_are_no_answers_and_stay_in_the_record(archive: Archive) -> None:
    begin(archive, PLACE, "propose", "a-model", "p", WORST, 0.05)
    answer(archive, begin(archive, PLACE, "propose", "a-model", "p", WORST, 0.05), reply="", outcome="timeout")
    assert answered(archive, PLACE, "propose") is None
    answer(archive, begin(archive, PLACE, "propose", "a-model", "p", WORST, 0.05), reply="third")
    found = answered(archive, PLACE, "propose")
    assert found is not None
    assert found.reply == "third"
    assert [c.outcome for c in calls_of_run(archive, "r")] == [OPEN, "timeout", OK]
    assert spending_of(archive, "r").cost_usd == pytest.approx(0.07)


def test_a_call_without_a_price_counts_its_tokens_only(archive: Archive) -> None:
    answer(archive, begin(archive, PLACE, "propose", "a-model", "p", WORST, None), cost=None)
    assert calls_of_run(archive, "r")[0].cost_usd is None
    assert spending_of(archive, "r") == Spending(1, 1100, 0.0)
    assert spending_of(archive, "another run") == Spending(0, 0, 0.0)


def test_an_archive_of_the_schema_before_is_brought_here(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    make(path, "0002")
    with Archive.open(path) as archive:
        archive.add_problem(PROBLEM, INFO)
        archive.start_run("r", PROBLEM, "cpu", {})
        begin(archive, PLACE, "propose", "a-model", "p", WORST, None)
        assert len(calls_of_run(archive, "r")) == 1
