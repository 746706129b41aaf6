"""Replies of language models, several at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kernelwright.agent.llm.ask import ask
from kernelwright.agent.llm.budget import Amounts, Budget, Limits
from kernelwright.agent.llm.client import Client
from kernelwright.agent.llm.course import Request
from kernelwright.agent.llm.faults import BudgetSpent
from kernelwright.agent.llm.models import Models, Role, Tried, choose
from kernelwright.agent.llm.prices import Prices
from kernelwright.agent.llm.reply import CallFailed
from kernelwright.agent.proposers.source import Question
from kernelwright.stages.archive import SEARCH, Archive, calls
from kernelwright.stages.evolve.member import Member, gain_over_parent

MOST_AT_ONCE = 8
MOST_REPLY_TOKENS = {Role.TRANSLATE: 16_384, Role.PROPOSE: 16_384, Role.DIAGNOSE: 2_048}

log = logging.getLogger(__name__)


class ModelSource:
    """Asks the endpoint; every call is in the archive before it is made."""

    name = "llm"

    def __init__(self, archive: Archive, run: str, models: Models, limits: Limits, prices: Prices, seed: int) -> None:
        """Raises UsageError where there is no key, or no price for a limit on money."""
        if limits.usd is not None:
            prices.require(models.all)
        spent = calls.spending_of(archive, run)
        self.archive = archive
        self.run = run
        self.models = models
        self.seed = seed
        self.client = Client(Budget(limits, Amounts(usd=spent.cost_usd, tokens=spent.tokens)), prices)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def replies(self, questions: Sequence[Question]) -> list[str | None]:
        """As `Source.replies`. What the budget still allows is asked; it is spent when it allows nothing."""
        self.client.check()
        history = self._history()
        with ThreadPoolExecutor(max_workers=MOST_AT_ONCE, thread_name_prefix="model") as threads:
            asked = [threads.submit(self._ask, question, history) for question in questions]
            found, stop = list[str | None](), None
            for future in asked:
                try:
                    found.append(future.result())
                except BudgetSpent as spent:
                    stop = spent
                    found.append(None)
        self.client.check()
        if stop is not None and not any(found):
            raise stop
        return found

    def _ask(self, question: Question, history: Sequence[Tried]) -> str | None:
        place = question.place
        turn = place.generation * 1000 + place.slot * 10 + place.attempt
        model = choose(self.models.by_role[question.role], history, self.seed, turn)
        request = Request(model, question.prompt, MOST_REPLY_TOKENS[question.role])
        try:
            return ask(self.client, self.archive, place, question.role, request)
        except CallFailed as failed:
            log.warning("no reply for slot %d of generation %d: %s", place.slot, place.generation, failed)
            return None

    def _history(self) -> list[Tried]:
        """What each model's calls have brought and used: the gain of the candidate that stands in the call's place."""
        members = {(m.generation, m.slot): m for m in members_of(self.archive, self.run)}
        by_hash = {m.hash: m for m in members.values()}
        found = []
        for call in calls.calls_of_run(self.archive, self.run):
            member = members.get((call.place.generation, call.place.slot))
            gain = gain_over_parent(member, by_hash) if member is not None else None
            tokens = call.usage.tokens_in + call.usage.tokens_out
            found.append(Tried(call.model, gain or 0.0, tokens, call.cost_usd))
        return found


def members_of(archive: Archive, run: str) -> list[Member]:
    """The run's judged candidates in their places."""
    results = {r.candidate.hash: r.result for r in archive.results_of(run, SEARCH)}
    places: dict[int, int] = {}
    found = []
    for generation, candidate in archive.proposals(run):
        slot = places.get(generation, 0)
        places[generation] = slot + 1
        if candidate.hash in results:
            found.append(Member(candidate, results[candidate.hash], generation, slot))
    return found
