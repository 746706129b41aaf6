"""`kernelwright resume`: go on with a run."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath, Json, existing_archive

app = typer.Typer()


@app.command()
def resume(
    run: Annotated[str, typer.Argument(help="The run's id: the name of its folder.")],
    archive: ArchivePath = DEFAULT_ARCHIVE,
    json: Json = False,
) -> None:
    """Go on with a run that was interrupted or killed. Nothing that was finished is done again."""
    existing_archive(archive)
    from kernelwright.agent.cli.optimize import carry_through
    from kernelwright.agent.run import open_again

    raise typer.Exit(int(carry_through(open_again(run, archive), json)))
