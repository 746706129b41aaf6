"""`kernelwright worker`: run a bundle here. On a bare machine: `python3 -m kernelwright.stages.execute.worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.agent.cli.common import seconds

app = typer.Typer()


@app.command()
def worker(
    bundle: Annotated[Path, typer.Argument(help="A folder made by `kernelwright jobs export`.")],
    time: Annotated[str | None, typer.Option(help="Begin no further job after this long: 90, 90s, 8m, 1h.")] = None,
) -> None:
    """Run a bundle's jobs on this machine's device; results are appended to the bundle as they come.

    Exit status: 0 every job has a result, 4 the time was over first (run it again to go on).
    """
    from kernelwright.stages.execute.worker import main

    limit = [] if time is None else ["--time", str(seconds(time))]
    raise typer.Exit(main([str(bundle), *limit]))
