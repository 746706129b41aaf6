"""A run from its first line to its last: make or reopen its folder, walk the graph, report.

runs/<run>/
    problem.py         the reference as it was given
    best_model.py      the winning `ModelNew`, when there is one
    report.html        and report.json
    checkpoint.db      LangGraph's own
    worker.log         what the worker process printed
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver

from kernelwright.agent import graph
from kernelwright.agent.ledger import Ledger
from kernelwright.agent.outcome import outcome
from kernelwright.agent.proposers.base import Proposer
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.agent.settings import RunSettings
from kernelwright.agent.state import RunState, Services
from kernelwright.agent.ui.events import Observer
from kernelwright.agent.ui.view import RunView, fold_records
from kernelwright.kernelbench import contract
from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import Archive
from kernelwright.stages.execute.job import Executor
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.translate import translate

RECURSION_LIMIT = 10_000
"""Steps of the graph: a guard against a loop that never ends, far above what any budget allows."""


@dataclass(frozen=True)
class Opened:
    """A run that is ready to be walked."""

    run: str
    problem: Problem
    settings: RunSettings
    folder: Path

    def view(self) -> RunView:
        """The run as the archive knows it."""
        empty = RunView(
            self.run, self.problem, self.settings.device, self.settings.max_candidates, self.settings.time_s
        )
        with Archive.open(self.settings.archive) as archive:
            view = fold_records(empty, outcome(archive, self.run))
            return replace(view, stop=archive.run(self.run).stop)

    def resume_command(self) -> str:
        """What to type to go on with it."""
        archive = "" if self.settings.archive == Path("archive.db") else f" --archive {self.settings.archive}"
        return f"kernelwright resume {self.run}{archive}"


def open_new(problem: Problem, settings: RunSettings) -> Opened:
    """Check the problem and open a run for it. Nothing is written before the problem has passed."""
    contract.check(problem, settings.device)
    info = translate(problem)
    run = f"{problem.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with Archive.open(settings.archive) as archive:
        archive.add_problem(problem, info)
        archive.start_run(run, problem, settings.device, settings.model_dump(mode="json"))
    folder = settings.runs / run
    folder.mkdir(parents=True)
    (folder / "problem.py").write_text(problem.source)
    return Opened(run, problem, settings, folder)


def open_again(run: str, archive_path: Path) -> Opened:
    """Reopen a run by its id, with the settings that it was started with, to go on with its search."""
    opened, status = look_up(run, archive_path)
    if status == "done":
        raise UsageError(f"run {run} is finished: see {opened.folder / 'report.html'}")
    return opened


def look_up(run: str, archive_path: Path) -> tuple[Opened, str]:
    """A run by its id, finished or not, and its status. Raises UsageError when the archive has no such run."""
    with Archive.open(archive_path) as archive:
        row = archive.run(run)
        problem = archive.problem(row.problem_hash)
    settings = RunSettings.model_validate(row.settings | {"archive": archive_path})
    return Opened(run, problem, settings, settings.runs / run), row.status


def walk(opened: Opened, observe: Observer, executor: Executor | None = None, proposer: Proposer | None = None) -> None:
    """Go through the graph from wherever the checkpoint stands, and mark the run as done."""
    own = executor is None
    executor = executor or _local_executor(opened)
    info = translate(opened.problem)
    try:
        with (
            Archive.open(opened.settings.archive) as archive,
            closing(sqlite3.connect(opened.folder / "checkpoint.db", check_same_thread=False)) as connection,
        ):
            # With the write-ahead log this survives a kill; a fsync each step would cost more than the step.
            connection.execute("PRAGMA synchronous = NORMAL")
            services = Services(
                problem=opened.problem,
                info=info,
                settings=opened.settings,
                ledger=Ledger(archive, opened.run),
                executor=executor,
                proposer=proposer or BuiltinProposer(),
                observe=observe,
            )
            app = graph.build(services, SqliteSaver(connection))
            config: RunnableConfig = {"configurable": {"thread_id": opened.run}, "recursion_limit": RECURSION_LIMIT}
            begun = app.get_state(config).values
            first = RunState(run=opened.run, generation=0, stale=0, elapsed_s=0.0, stop="")
            last = app.invoke(None if begun else first, config, durability="sync")
            archive.finish_run(opened.run, last["stop"])
    finally:
        if own:
            executor.close()


def _local_executor(opened: Opened) -> LocalExecutor:
    executor = LocalExecutor(cache=opened.folder / "build", log=opened.folder / "worker.log")
    executor.start()
    return executor
