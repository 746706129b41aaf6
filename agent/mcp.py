"""The tools by which a coding agent drives Kernelwright, over the Model Context Protocol.

An agent hands in text and reads verdicts. Whatever a candidate does wrong is an answer with evidence; what cannot be
used, or what the machine lacks, is a tool error of one line. Scores come from the referee alone: no tool takes one.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

from kernelwright import __version__
from kernelwright.agent import answers, verification
from kernelwright.agent.comparison import compared
from kernelwright.agent.outcome import outcome
from kernelwright.agent.referee import Referee, Work
from kernelwright.agent.settings import settings_from
from kernelwright.agent.submission import NAME, submit, submitted
from kernelwright.agent.verification import Terms, candidate_of, verified
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.reads import listed, shown
from kernelwright.stages.execute.job import Executor
from kernelwright.stages.profile import ladder
from kernelwright.stages.types import Backend

T = TypeVar("T")
Report = Context[Any, Any]

LONGEST_SOURCE = 200_000
"""Characters. A kernel's file has a few thousand; whatever is far longer was not meant to be sent."""
LONGEST_NOTE = 500
MOST_COMPARED = 8
MOST_FOUND = 50
PROGRESS_S = 2.0
"""A call that lasts longer reports so often what it is doing."""

INSTRUCTIONS = """Kernelwright judges replacements of PyTorch modules. A problem is a Python file with `Model`,
`get_inputs()` and `get_init_inputs()`; a candidate is a Python file with `ModelNew`, given as text, with the arguments
of `Model`. Outputs are compared with float64; times are taken beside eager and torch.compile. Verify while you write,
bench to choose between versions, and submit what should be kept: only that is stored. A verdict other than `correct`
says what failed, with figure and bound. Only a speedup whose `gain` is true counts."""

Source = Annotated[
    str, Field(min_length=1, max_length=LONGEST_SOURCE, description="A Python file that defines ModelNew, as text.")
]
ProblemSpec = Annotated[
    str, Field(description="A file, `file.py:ClassName` with `inputs`, or a problem of a suite such as core/softmax.")
]
Shape = Annotated[str | None, Field(description="A label of the problem's SHAPES.")]
Inputs = Annotated[
    str | None, Field(description="With ClassName: forward's arguments, for example 'torch.randn(64, 128)'.")
]
Init = Annotated[str | None, Field(description="With ClassName: the constructor's arguments.")]
Claimed = Annotated[
    Literal["auto", "triton", "cuda", "cpp", "torch"],
    Field(description="The back end that the candidate claims; auto: what its source defines."),
]
PrecisionChoice = Annotated[
    Literal["strict", "tf32", "task"] | None,
    Field(description="What the result may be computed in; otherwise what the problem says, else strict."),
]
Baselines = Annotated[
    list[Literal["eager", "compile", "max-autotune"]], Field(min_length=1, description="What it is timed beside.")
]
Seed = Annotated[int | None, Field(ge=0, lt=2**31, description="Of the inputs; drawn anew otherwise.")]


class Named(BaseModel):
    """A candidate of a comparison."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    source: Source


@dataclass(frozen=True)
class Place:
    """What a server works with."""

    archive: Path
    runs: Path
    device: str


class Tools:
    """What the tools do. Each method is a tool; its docstring is what the agent reads."""

    def __init__(self, place: Place, referee: Referee) -> None:
        self.place = place
        self.referee = referee
        self._checked: set[str] = set()
        """Hashes of problems that can be used."""

    async def verify(
        self,
        context: Report,
        source: Source,
        problem: ProblemSpec,
        shape: Shape = None,
        inputs: Inputs = None,
        init: Init = None,
        backend: Claimed = "auto",
        precision: PrecisionChoice = None,
        timed: Annotated[bool, Field(description="False: only verify, which is faster.")] = True,
        baselines: Baselines = ["eager", "compile"],  # noqa: B006 (the schema shows it)
        seed: Seed = None,
    ) -> answers.Verification:
        """Judge one candidate: is it right, and how fast is it beside eager and torch.compile? Nothing is stored."""
        loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
        candidate = candidate_of(source, _backend(backend))
        terms = self._terms(precision, baselines, seed, timed)

        def work(executor: Executor, watch: verification.Watch) -> answers.Verification:
            self._check(loaded)
            return answers.verification_of(verified(executor, NAME, candidate, loaded, terms, watch))

        return await self._answer(context, work)

    async def bench(
        self,
        context: Report,
        candidates: Annotated[
            list[Named],
            Field(
                min_length=1, max_length=MOST_COMPARED, description=f"Up to {MOST_COMPARED}, each a name and a source."
            ),
        ],
        problem: ProblemSpec,
        shape: Shape = None,
        inputs: Inputs = None,
        init: Init = None,
        precision: PrecisionChoice = None,
        baselines: Baselines = ["eager", "compile"],  # noqa: B006 (the schema shows it)
    ) -> answers.Comparison:
        """Time candidates of one problem side by side, and say which are really faster. Nothing is stored."""
        loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
        named = [(given.name, candidate_of(given.source, None)) for given in candidates]
        terms = self._terms(precision, baselines, None, True)

        def work(executor: Executor, watch: verification.Watch) -> answers.Comparison:
            self._check(loaded)
            return answers.comparison_of(compared(executor, named, loaded, terms, watch))

        return await self._answer(context, work)

    async def profile(
        self,
        context: Report,
        source: Source,
        problem: ProblemSpec,
        shape: Shape = None,
        inputs: Inputs = None,
        init: Init = None,
        backend: Claimed = "auto",
    ) -> answers.Profiled:
        """Say what limits a candidate, from the best profiler that this machine has. Advice, never a score."""
        loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
        candidate = candidate_of(source, _backend(backend))
        terms = self._terms(None, ["eager"], None, True)

        def work(executor: Executor, watch: verification.Watch) -> answers.Profiled:
            self._check(loaded)
            job = verification.job_of(f"profile/{candidate.hash[:12]}", candidate, loaded, terms)
            return answers.profiled_of(ladder.profile(job, executor, watch))

        return await self._answer(context, work)

    def search_archive(
        self,
        text: Annotated[
            str,
            Field(max_length=200, description="Words of the problem's name, of the author's note, or of the source."),
        ] = "",
        problem: Annotated[
            str | None,
            Field(description="Of this problem: its name, or what it was opened with, such as core/softmax."),
        ] = None,
        backend: Annotated[Backend | None, Field(description="Written for this back end.")] = None,
        correct_only: Annotated[bool, Field(description="False: also those with another verdict.")] = True,
        with_source: Annotated[bool, Field(description="Also give each candidate's source.")] = False,
        limit: Annotated[int, Field(ge=1, le=MOST_FOUND, description=f"At most {MOST_FOUND}.")] = 10,
    ) -> answers.SearchResult:
        """Find judged candidates, the largest speedup over eager first: what has worked, and what has not."""
        if not self.place.archive.exists():
            return answers.SearchResult(candidates=[], more=False)
        with Archive.open(self.place.archive) as archive:
            found = listed(
                archive, problem=problem, text=text, backend=backend, correct_only=correct_only, limit=limit + 1
            )
            hashes = {row.hash for row in found[:limit]} if with_source else set()
            sources = {name: shown(archive, name).candidate.source for name in hashes}
        return answers.search_result_of(found, limit, sources)

    async def submit_candidate(
        self,
        context: Report,
        source: Source,
        run: Annotated[str | None, Field(description="The run that it is for. Give this or `problem`.")] = None,
        problem: Annotated[
            str | None, Field(description="Opens a new run for a file or a suite's problem such as core/softmax.")
        ] = None,
        shape: Shape = None,
        inputs: Inputs = None,
        init: Init = None,
        note: Annotated[
            str, Field(max_length=LONGEST_NOTE, description="What you set out to do: stored with the candidate.")
        ] = "",
        backend: Claimed = "auto",
    ) -> answers.Submitted:
        """Have a candidate judged and stored in a run, once, beside those of its search.

        What would be the run's winner is measured again on other inputs. The answer names the run, for the next one.
        """
        if (run is None) == (problem is None):
            raise UsageError("give either `run`, or `problem` for a new run")
        loaded = from_spec(problem, inputs=inputs, init=init, shape=shape) if problem is not None else None
        candidate = submitted(source, note, _backend(backend))

        def work(executor: Executor, watch: verification.Watch) -> answers.Submitted:
            # Importing torch takes seconds: the worker imports it at the same time.
            from kernelwright.agent.run import look_up, open_new

            if loaded is not None:
                opened = open_new(loaded, settings_from(vars(self.place)))
            else:
                assert run is not None
                opened, _ = look_up(run, self._archive())
            return answers.submitted_of(submit(opened, candidate, executor, watch))

        return await self._answer(context, work)

    def run_status(
        self, run: Annotated[str, Field(description="Its id, as submit_candidate answers it.")]
    ) -> answers.RunStatus:
        """Say where a run stands: its winner, its fastest candidate, and the latest verdicts."""
        from kernelwright.agent.run import look_up

        opened, status = look_up(run, self._archive())
        with Archive.open(self.place.archive) as archive:
            proposed = len({candidate.hash for _, candidate in archive.proposals(run)})
            found = outcome(archive, run)
        return answers.run_status_of(opened.view(), found, status, proposed, opened.folder.resolve())

    def _terms(self, precision: str | None, baselines: list[Any], seed: int | None, timed: bool) -> Terms:
        asked = Precision(precision) if precision else None
        terms = Terms(self.place.device, asked, timed=timed, baselines=tuple(baselines))
        return terms if seed is None else replace(terms, seed=seed)

    def _check(self, problem: Problem) -> None:
        if problem.hash not in self._checked:
            verification.check(problem, self.place.device)
            self._checked.add(problem.hash)

    def _archive(self) -> Path:
        if not self.place.archive.exists():
            raise UsageError(f"{self.place.archive}: no such archive yet; submit_candidate with a problem makes it")
        return self.place.archive

    async def _answer(self, context: Report, work: Work[T]) -> T:
        """Wait for the referee, and report meanwhile. A call that the client cancels is withdrawn."""
        call = self.referee.call(work)
        begun, waiting = time.monotonic(), asyncio.wrap_future(call.future)
        try:
            while not (await asyncio.wait([waiting], timeout=PROGRESS_S))[0]:
                await context.report_progress(time.monotonic() - begun, message=call.stage)
        except asyncio.CancelledError:
            # In a thread: ending the worker takes a while, in which other calls are answered.
            threading.Thread(target=self.referee.withdraw, args=(call,)).start()
            raise
        return waiting.result()


def _backend(choice: str) -> Backend | None:
    return None if choice == "auto" else Backend(choice)


class Server(MCPServer[Any]):
    """Says in one line what is wrong with a call."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises ToolError for what the caller can mend."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                first = cause.errors()[0]
                where = ".".join(map(str, first["loc"]))
                raise ToolError(f"{name}: {where}: {first['msg']}" if where else f"{name}: {first['msg']}") from None
            if isinstance(cause, UsageError | EnvironmentFault):
                raise ToolError(f"{name}: {cause}") from None
            raise


READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
STORES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def tools_of(tools: Tools) -> Iterator[tuple[Callable[..., Any], ToolAnnotations]]:
    """Every tool with what a client may assume of it."""
    yield tools.verify, READS
    yield tools.bench, READS
    yield tools.profile, READS
    yield tools.search_archive, READS
    yield tools.submit_candidate, STORES
    yield tools.run_status, READS


def server_of(place: Place, referee: Referee) -> Server:
    """A server over these tools."""
    server = Server("kernelwright", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool, hints in tools_of(Tools(place, referee)):
        server.add_tool(tool, description=inspect.getdoc(tool), annotations=hints)
    return server
