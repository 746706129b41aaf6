"""Options that `verify` and `bench` share, and what they make of them."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.execute import scratch
from kernelwright.stages.types import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelwright.agent.verification import Terms, Watch
    from kernelwright.stages.execute.job import Progress

Reference = Annotated[
    str, typer.Option("--ref", help="The problem: a file, `file.py:ClassName` with --inputs, or such as core/softmax.")
]
Shape = Annotated[str | None, typer.Option(help="A label of the problem's SHAPES.")]
Inputs = Annotated[
    str | None, typer.Option(help="With ClassName: forward's arguments, for example 'torch.randn(64, 128)'.")
]
Init = Annotated[str | None, typer.Option(help="With ClassName: the constructor's arguments.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where it is judged.")]
BackendChoice = Annotated[
    Literal["auto", "triton", "cuda", "cpp", "torch"],
    typer.Option(help="The back end that the candidate claims; auto: what its source defines."),
]
PrecisionChoice = Annotated[
    Literal["strict", "tf32", "task"] | None,
    typer.Option(help="What the result may be computed in; otherwise what the problem says, else strict."),
]
NoLibrary = Annotated[bool, typer.Option("--no-library", help="Refuse a candidate whose answer a library computes.")]
BaselineNames = Annotated[str, typer.Option(help="Timed beside it: eager, compile, max-autotune; by commas.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Of the inputs; drawn anew otherwise.")]
Timeout = Annotated[float, typer.Option(help="Seconds that building and each answer may take.")]

STAGES = {
    "compile": "compiling",
    "prepare": "drawing inputs, working out the right answers",
    "verify": "verifying",
    "baselines": "waiting for the baselines",
    "measure": "timing",
    "profile": "profiling",
}


def problem_of(ref: str, shape: str | None, inputs: str | None, init: str | None) -> tuple[Problem, list[str]]:
    """The problem, and the words that name it on a command line."""
    from kernelwright.kernelbench.sources import from_spec

    problem = from_spec(ref, inputs=inputs, init=init, shape=shape)
    given = (("--ref", ref), ("--shape", shape), ("--inputs", inputs), ("--init", init))
    return problem, [word for option, value in given if value is not None for word in (option, value)]


def backend_of(choice: str) -> Backend | None:
    """None for `auto`."""
    return None if choice == "auto" else Backend(choice)


def terms_of(precision: str | None, baselines: str, seed: int | None, **given: Any) -> Terms:
    """The terms that the options state. Raises UsageError."""
    from kernelwright.agent.verification import Terms

    names = tuple(name for name in (part.strip() for part in baselines.split(",")) if name)
    if not names:
        raise UsageError("--baselines names none; leave it out, or use --no-time")
    if seed is not None:
        given["seed"] = seed
    return Terms(precision=Precision(precision) if precision else None, baselines=names, **given)


@contextmanager
def session(name: str) -> Iterator[Watch]:
    """On stderr it says what is going on: in one line that changes on a terminal, else in a line a stage.

    At the end nothing is left in the temporary folder.
    """
    # torch makes this folder merely by following shapes, and leaves it.
    with scratch.folder("torch") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        if not sys.stderr.isatty():
            seen: set[str] = set()

            def say(event: Progress) -> None:
                if event.stage not in seen:
                    seen.add(event.stage)
                    print(f"{name}: {STAGES.get(event.stage, event.stage)}", file=sys.stderr, flush=True)

            yield say
            return
        from rich.console import Console

        with Console(stderr=True, highlight=False).status(f"{name}: starting", spinner="line") as status:
            yield lambda event: status.update(f"{name}: {STAGES.get(event.stage, event.stage)}")
