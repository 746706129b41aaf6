"""`kernelwright optimize`: make a module faster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath, Json, emit, seconds
from kernelwright.agent.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelwright.agent.run import Opened

app = typer.Typer()


@app.command()
def optimize(
    problem: Annotated[
        str,
        typer.Argument(help="A file, `file.py:ClassName` with --inputs, or a problem of a suite such as core/softmax."),
    ],
    device: Annotated[str, typer.Option(help="cpu or cuda: where candidates are verified and timed.")] = "cpu",
    shape: Annotated[str | None, typer.Option(help="A label of the problem's SHAPES.")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="With ClassName: forward's arguments, for example 'torch.randn(64, 128)'.")
    ] = None,
    init: Annotated[str | None, typer.Option(help="With ClassName: the constructor's arguments.")] = None,
    max_candidates: Annotated[int | None, typer.Option(min=1, help="Stop after this many candidates.")] = None,
    time: Annotated[str | None, typer.Option(help="Stop proposing after this long: 90, 90s, 3m, 1h.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the inputs and the search; drawn anew otherwise.")] = None,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Make a module faster, and say by how much, with a 95 % interval.

    Exit status: 0 a gain was confirmed, 1 none was, 2 the problem cannot be used, 3 the machine lacks something,
    130 interrupted (`kernelwright resume RUN` goes on).
    """
    from kernelwright.agent.settings import settings_from
    from kernelwright.kernelbench.sources import from_spec

    loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
    given = {
        "device": device,
        "max_candidates": max_candidates,
        "time_s": None if time is None else seconds(time),
        "seed": seed,
        "archive": archive,
        "runs": runs,
    }
    settings = settings_from(given)
    # Importing torch takes seconds: a name that is wrong is told before.
    from kernelwright.agent.run import open_new

    raise typer.Exit(int(carry_through(open_new(loaded, settings), json)))


def carry_through(opened: Opened, json: bool) -> ExitCode:
    """Walk a run with its screen, then print how it ended. Used by `resume` too."""
    from kernelwright.agent.finish import finish
    from kernelwright.agent.run import walk
    from kernelwright.agent.ui import summary
    from kernelwright.agent.ui.live import LiveScreen

    try:
        with LiveScreen(opened.view()) as screen:
            walk(opened, screen)
    except KeyboardInterrupt:
        print(f"\nkernelwright: go on with: {opened.resume_command()}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    view, outcome, paths = finish(opened)
    text = "\n".join(summary.lines(view, outcome, paths))
    print(text, file=sys.stderr if json else sys.stdout)
    if json:
        result: dict[str, Any] = summary.as_json(view, outcome, paths)
        emit(result)
    return summary.exit_code(outcome)
