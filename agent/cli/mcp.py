"""`kernelwright mcp`: serve a coding agent."""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath
from kernelwright.agent.cli.judging import Device
from kernelwright.kernelbench.errors import EnvironmentFault

ENDING = (signal.SIGTERM, signal.SIGINT)

app = typer.Typer(add_completion=False)


@app.command()
def mcp(
    device: Device = "cpu",
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
) -> None:
    """Serve the tools of docs/mcp.md on standard input and output, for a coding agent that starts this command.

    Exit status: 0 when the client closes standard input, 3 the machine lacks something.
    """
    if importlib.util.find_spec("mcp") is None:
        raise EnvironmentFault("the package mcp is not installed: pip install 'kernelwright[mcp]'")
    from kernelwright.agent.mcp import Place, server_of
    from kernelwright.agent.referee import Referee

    folder = tempfile.TemporaryDirectory(prefix="kernelwright-mcp-", ignore_cleanup_errors=True)
    # What the worker and torch leave in the temporary folder goes with this one, even where they were killed.
    os.environ["TMPDIR"] = tempfile.tempdir = folder.name
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder.name) / "inductor")
    referee = Referee(Path(folder.name))

    def leave(status: int) -> NoReturn:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        referee.close()
        folder.cleanup()
        # Threads are left behind: one waits for standard input, another may be in a reference's forward.
        os._exit(status)

    for number in ENDING:
        signal.signal(number, lambda number, frame: leave(128 + number))
    server_of(Place(archive, runs, device), referee).run()
    leave(0)
