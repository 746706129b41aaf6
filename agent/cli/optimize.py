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

WRITTEN_TIME_S = 3600.0
"""What a run may take, unless told, where models or people write candidates."""


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
    target: Annotated[float | None, typer.Option(help="Stop when a candidate is so many times as fast.")] = None,
    device_time: Annotated[
        str | None, typer.Option(help="Stop proposing after candidates were verified and timed for so long: 5m.")
    ] = None,
    proposer: Annotated[
        str, typer.Option(help="Who proposes: builtin, llm, handoff; several with commas share the slots.")
    ] = "builtin",
    model: Annotated[
        list[str] | None,
        typer.Option(help="With llm: NAME[,NAME], or ROLE=NAME for translate, propose, diagnose; may be given again."),
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(help="What the models may cost, in US dollars.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that the models may read and write.")] = None,
    prices: Annotated[Path | None, typer.Option(help="A file of prices beside those that are built in.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the inputs and the search; drawn anew otherwise.")] = None,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Make a module faster, and say by how much, with a 95 % interval.

    Exit status: 0 a gain was confirmed, 1 none was, 2 the problem cannot be used, 3 the machine lacks something, 4 no
    gain within the models' budget, 5 the models' endpoint is down, 75 replies are waited for, 130 interrupted. After
    5, 75 and 130 `kernelwright resume RUN` goes on.
    """
    from kernelwright.agent.settings import settings_from
    from kernelwright.kernelbench.sources import from_spec

    loaded = from_spec(problem, inputs=inputs, init=init, shape=shape)
    given = {
        "device": device,
        "max_candidates": max_candidates,
        "time_s": seconds(time) if time is not None else None if proposer == "builtin" else WRITTEN_TIME_S,
        "target": target,
        "device_time_s": None if device_time is None else seconds(device_time),
        "proposer": tuple(name.strip() for name in proposer.split(",")),
        "models": tuple(model or ()),
        "budget_usd": budget_usd,
        "budget_tokens": budget_tokens,
        "prices": prices,
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
    from kernelwright.agent.llm.faults import EndpointFault
    from kernelwright.agent.proposers.handoff import Waiting
    from kernelwright.agent.run import walk
    from kernelwright.agent.ui import summary
    from kernelwright.agent.ui.live import LiveScreen

    try:
        with LiveScreen(opened.view()) as screen:
            walk(opened, screen)
    except KeyboardInterrupt:
        print(f"\nkernelwright: go on with: {opened.resume_command()}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except (Waiting, EndpointFault) as stopped:
        print(f"kernelwright: {stopped}; then go on with: {opened.resume_command()}", file=sys.stderr)
        return ExitCode.WAITING if isinstance(stopped, Waiting) else ExitCode.ENDPOINT_DOWN
    view, outcome, paths = finish(opened)
    text = "\n".join(summary.lines(view, outcome, paths))
    print(text, file=sys.stderr if json else sys.stdout)
    if json:
        result: dict[str, Any] = summary.as_json(view, outcome, paths)
        emit(result)
    return summary.exit_code(outcome, view.stop)
