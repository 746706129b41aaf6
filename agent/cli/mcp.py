"""`kernelwright mcp`: serve a coding agent."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath
from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.cli.judging import Device
from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.execute import scratch

ENDING = (signal.SIGTERM, signal.SIGINT)

app = typer.Typer(add_completion=False)


@app.command()
def mcp(
    device: Device = "cpu",
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
) -> None:
    """Serve the tools of docs/mcp.md on standard input and output, for a coding agent that starts this command.

    Exit status: 0 when the client closes standard input, 3 the machine lacks something,
    130 interrupted.
    """
    if importlib.util.find_spec("mcp") is None:
        raise EnvironmentFault("the package mcp is not installed: pip install 'kernelwright[mcp]'")
    from kernelwright.agent.mcp import Place, server_of
    from kernelwright.agent.referee import Referee

    temporary = contextlib.ExitStack()
    folder = temporary.enter_context(scratch.folder("mcp"))
    # What the worker and torch leave in the temporary folder goes with this one, even where they were killed.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    referee = Referee(folder)

    def leave(status: ExitCode) -> NoReturn:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        referee.close()
        temporary.close()
        # Threads are left behind: one waits for standard input, another may be in a reference's forward.
        os._exit(status)

    for number in ENDING:
        signal.signal(number, lambda number, frame: leave(ExitCode.INTERRUPTED))
    server_of(Place(archive, runs, device), referee).run()
    leave(ExitCode.GOAL_MET)
