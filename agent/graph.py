"""The loop: propose -> evaluate, again and again, then confirm the winner.

Every node can be killed at any point and run again: proposals are keyed by generation and slot, results by candidate,
and both are in the database before the checkpoint moves on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from kernelwright.agent.llm.faults import BudgetSpent
from kernelwright.agent.proposers.assignment import MOST_REPAIRS
from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.agent.state import RunState, Services
from kernelwright.agent.ui.events import Evaluated, Proposed, Stopped
from kernelwright.agent.ui.summary import BUDGET_STOP
from kernelwright.stages.evolve.member import Member
from kernelwright.stages.evolve.stop import near_speed_of_light, target_reached
from kernelwright.stages.execute.bundle import confirmation
from kernelwright.stages.execute.job import Effort, Job
from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.types import Status

CONFIRMED_AT_MOST = 3
"""Candidates that are measured again when the fastest one does not hold its gain."""

ON_THE_DEVICE = ("build", "verify", "measure")
"""Stages of an evaluation that hold the device."""

Update = dict[str, Any]


def build(services: Services, checkpointer: BaseCheckpointSaver[str]) -> CompiledStateGraph[RunState]:
    """The compiled graph over these services."""
    graph = StateGraph(RunState)
    for name, node in (("propose", propose), ("evaluate", evaluate), ("confirm", confirm)):
        graph.add_node(name, _timed(node, services))
    graph.add_edge(START, "propose")
    graph.add_edge("propose", "evaluate")
    graph.add_conditional_edges("evaluate", lambda state: "confirm" if state["stop"] else "propose")
    graph.add_edge("confirm", END)
    return graph.compile(checkpointer=checkpointer)


class Node(Protocol):
    """A step of the graph."""

    def __call__(self, state: RunState) -> Update:
        """What the step changes in the state."""
        ...


def _timed(node: Callable[[Services, RunState], Update], services: Services) -> Node:
    def run(state: RunState) -> Update:
        start = time.monotonic()
        update = node(services, state)
        return update | {"elapsed_s": state["elapsed_s"] + time.monotonic() - start}

    return run


def propose(services: Services, state: RunState) -> Update:
    """Ask the proposer for a generation, unless a killed process has done so already."""
    ledger, generation = services.ledger, state["generation"]
    if generation not in ledger.generations:
        history = ledger.trials()
        room = services.settings.max_candidates - len(history)
        context = Context(
            problem=services.problem,
            info=services.info,
            device=services.settings.device,
            generation=generation,
            slots=min(services.settings.generation_size, room),
            seed=services.settings.seed,
            history=history,
        )
        try:
            ledger.propose(generation, services.proposer.propose(context))
        except BudgetSpent as spent:
            ledger.propose(generation, [])
            return {"stop": f"{BUDGET_STOP}{spent}"}
    services.observe(Proposed(generation, tuple(ledger.generations[generation])))
    return {}


def evaluate(services: Services, state: RunState) -> Update:
    """Evaluate what has no verdict yet, each verdict committed the moment it is made; then see whether to go on."""
    start, run, generation = time.monotonic(), state["run"], state["generation"]
    incumbent = _incumbent(services.ledger.trials())
    jobs = [
        Job(
            key=f"{run}/{generation}/{candidate.hash[:12]}",
            problem=services.problem,
            candidate=candidate,
            device=services.settings.device,
            seed=services.settings.seed,
            effort=Effort(rounds=services.settings.rounds),
            incumbent_ms_over_eager=None if incumbent is None else 1.0 / _over_eager(incumbent),
        )
        for candidate in services.ledger.pending(generation)
    ]
    by_key = {job.key: job.candidate for job in jobs}
    for result in services.executor.run(jobs, services.observe):
        services.ledger.record(result)
        services.observe(Evaluated(by_key[result.key], result))
    return _advance(services, state, time.monotonic() - start)


def _advance(services: Services, state: RunState, seconds: float) -> Update:
    """The next generation's number, and why there is none where the search ends; `seconds` went into this one."""
    before = _incumbent(services.ledger.trials(until=state["generation"]))
    after = _incumbent(services.ledger.trials())
    faster = after is not None and (before is None or _over_eager(after) > _over_eager(before))
    stale = 0 if faster else state["stale"] + 1
    stop = _reason_to_stop(services, state, stale, seconds)
    if stop:
        services.observe(Stopped(stop))
    return {"generation": state["generation"] + 1, "stale": stale, "stop": stop}


def _reason_to_stop(services: Services, state: RunState, stale: int, seconds: float) -> str:
    if state["stop"]:
        return state["stop"]
    settings = services.settings
    tried = len(services.ledger.results)
    if not services.ledger.generations[state["generation"]]:
        return "every choice was tried"
    ungradable = [r for r in services.ledger.results.values() if r.verdict.status is Status.UNGRADABLE]
    if ungradable:
        return f"the task cannot tell right from wrong: {ungradable[0].verdict.message}"
    if tried >= settings.max_candidates:
        return f"{tried} candidates were tried"
    if state["elapsed_s"] + seconds >= settings.time_s:
        return f"{settings.time_s:g} s were spent"
    if settings.device_time_s is not None and _device_time_s(services) >= settings.device_time_s:
        return f"{settings.device_time_s:g} s of the device's time were spent"
    trials = services.ledger.trials()
    # Until something is right at all, a chain of repairs is let come to its end.
    patience = settings.patience if _incumbent(trials) else max(settings.patience, MOST_REPAIRS + 1)
    if stale >= patience:
        return f"{stale} generations brought nothing faster"
    members = [Member(t.candidate, t.result, t.generation, t.slot) for t in trials]
    return target_reached(members, settings.target) or near_speed_of_light(members)


def _device_time_s(services: Services) -> float:
    """How long candidates were verified and timed."""
    return sum(result.seconds.get(stage, 0.0) for result in services.ledger.results.values() for stage in ON_THE_DEVICE)


def confirm(services: Services, state: RunState) -> Update:
    """Measure the fastest candidates again with fresh inputs and more rounds, until one holds its gain.

    The search picks the largest of many noisy figures; only the second measurement is reported.
    """
    ranked = sorted((t for t in services.ledger.trials() if _measured(t)), key=_over_eager, reverse=True)
    for trial in ranked[:CONFIRMED_AT_MOST]:
        confirmed = services.ledger.confirmations.get(trial.candidate.hash)
        if confirmed is None:
            job = Job(
                key=trial.result.key,
                problem=services.problem,
                candidate=trial.candidate,
                device=services.settings.device,
                seed=services.settings.seed,
                effort=Effort(rounds=services.settings.rounds),
            )
            (confirmed,) = services.executor.run([confirmation(job)], services.observe)
            services.ledger.confirm(confirmed)
        services.observe(Evaluated(trial.candidate, confirmed, confirmed=True))
        if confirmed.measurement and is_gain(confirmed.measurement.speedups["eager"]):
            break
    return {}


def _measured(trial: Trial) -> bool:
    measurement = trial.result.measurement
    return measurement is not None and not measurement.screened_out and "eager" in measurement.speedups


def _over_eager(trial: Trial) -> float:
    assert trial.result.measurement is not None
    return trial.result.measurement.speedups["eager"].median


def _incumbent(history: list[Trial]) -> Trial | None:
    return max((t for t in history if _measured(t)), key=_over_eager, default=None)
