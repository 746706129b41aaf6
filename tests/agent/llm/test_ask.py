"""Every call is in the archive: before it is made, and with what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.agent.llm.ask import ask
from kernelwright.agent.llm.budget import Amounts, Budget, Limits
from kernelwright.agent.llm.client import Client
from kernelwright.agent.llm.course import Request
from kernelwright.agent.llm.faults import BudgetSpent
from kernelwright.agent.llm.models import Role
from kernelwright.agent.llm.prices import Price, Prices
from kernelwright.agent.llm.prompt import Prompt, Section
from kernelwright.agent.llm.reply import CallFailed
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.calls import Call, Place, Usage, calls_of_run, spending_of
from kernelwright.stages.translate.graph import Graph, OpInfo
from tests.agent.llm.server import Completion, Cut, Raw, ScriptedServer, broken, failure, overflow
from tests.agent.llm.server import Request as Sent

PROBLEM = Problem("doubling", "class Model: ...", "doubling.py")
INFO = OpInfo(Graph((), (), (), "single"), "mul[f32 r12]", "def forward(x): ...", 7, 4096, "export")
PRICES = Prices({"m": Price(input=1.0, output=10.0)})
PLACE = Place("r", 0, 0)
ASKED = Request("m", Prompt((Section("task", "make it faster"), Section("card", "tile", priority=1))), 100)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.open(tmp_path / "archive.db") as archive:
        archive.add_problem(PROBLEM, INFO)
        archive.start_run("r", PROBLEM, "cpu", {})
        yield archive


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield server


def client(budget: Budget | None = None, tries: int = 2) -> Client:
    return Client(budget, PRICES, tries=tries, first_wait_s=0.01)


def test_a_call_is_stored_with_what_it_cost(archive: Archive, server: ScriptedServer) -> None:
    server.script(Completion("a kernel", tokens_in=20, tokens_out=30))
    assert ask(client(), archive, PLACE, Role.PROPOSE, ASKED) == "a kernel"
    (row,) = calls_of_run(archive, "r")
    assert (row.place, row.role, row.model, row.outcome) == (PLACE, "propose", "m", "ok")
    assert (row.prompt, row.reply) == ("make it faster\n\ntile", "a kernel")
    assert (row.usage, row.requests) == (Usage(20, 0, 30), 1)
    assert row.cost_usd == pytest.approx(320 / 1e6)


def test_a_reply_that_is_stored_is_not_paid_for_again(archive: Archive, server: ScriptedServer) -> None:
    server.script(Completion("first"), Completion("second"))
    asked = client()
    assert ask(asked, archive, PLACE, Role.PROPOSE, ASKED) == "first"
    assert ask(asked, archive, PLACE, Role.PROPOSE, ASKED) == "first"
    assert ask(asked, archive, Place("r", 0, 0, attempt=1), Role.PROPOSE, ASKED) == "second"
    assert len(server.requests) == 2


def test_the_row_is_there_at_its_worst_while_the_call_is_under_way(archive: Archive, server: ScriptedServer) -> None:
    seen: list[Call] = []

    def look(_: Sent) -> Completion:
        seen.extend(calls_of_run(archive, "r"))
        return Completion("a kernel")

    server.script(look)
    asked = client()
    ask(asked, archive, PLACE, Role.PROPOSE, ASKED)
    worst = asked.worst(ASKED)
    assert [(row.outcome, row.usage, row.cost_usd) for row in seen] == [("open", worst.usage, worst.cost_usd)]


def test_a_shrunk_prompt_is_stored_as_it_was_sent(archive: Archive, server: ScriptedServer) -> None:
    server.script(overflow(200), Completion("a kernel"))
    ask(client(), archive, PLACE, Role.PROPOSE, ASKED)
    (row,) = calls_of_run(archive, "r")
    assert row.prompt == server.requests[-1].prompt == "make it faster"


@pytest.mark.parametrize(
    ("trouble", "outcome"), [(broken(), "broken"), (Cut("half"), "broken"), (failure(403, "no"), "refused")]
)
def test_a_failed_call_is_stored_with_the_reason(
    trouble: Raw | Cut, outcome: str, archive: Archive, server: ScriptedServer
) -> None:
    server.script(trouble, trouble)
    budget = Budget(Limits(usd=1.0))
    with pytest.raises(CallFailed) as failed:
        ask(client(budget), archive, PLACE, Role.PROPOSE, ASKED)
    (row,) = calls_of_run(archive, "r")
    assert (row.outcome, row.reply, row.message) == (outcome, "", str(failed.value))
    assert row.cost_usd == pytest.approx(budget.spent.usd)


def test_what_was_not_asked_costs_nothing(archive: Archive, server: ScriptedServer) -> None:
    with pytest.raises(BudgetSpent):
        ask(client(Budget(Limits(usd=1e-6))), archive, PLACE, Role.PROPOSE, ASKED)
    (row,) = calls_of_run(archive, "r")
    assert (row.outcome, row.cost_usd, row.requests) == ("stopped", 0.0, 0)
    assert server.requests == []


def test_a_resumed_run_counts_what_the_one_before_it_spent(archive: Archive, server: ScriptedServer) -> None:
    server.script(Completion("a kernel", tokens_in=20, tokens_out=80), after=Completion("more"))
    limits = Limits(usd=0.0019)
    first = client(Budget(limits))
    ask(first, archive, PLACE, Role.PROPOSE, ASKED)
    spending = spending_of(archive, "r")
    assert (spending.calls, spending.tokens) == (1, 100)
    assert spending.cost_usd == pytest.approx(first.budget.spent.usd)

    resumed = client(Budget(limits, spent=Amounts(usd=spending.cost_usd, tokens=spending.tokens)))
    ask(resumed, archive, Place("r", 0, 1), Role.PROPOSE, ASKED)
    with pytest.raises(BudgetSpent):
        ask(resumed, archive, Place("r", 0, 2), Role.PROPOSE, Request("m", ASKED.prompt, 200))
