"""The console entry. Each verb is a file; none is imported before it is called, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError

VERBS = {
    "optimize": "Make a module faster: propose, compile, verify, measure, keep the best.",
    "verify": "Judge one candidate against a reference, with all the evidence.",
    "bench": "Time candidates side by side, and say which are really faster.",
    "selftest": "Try the referee on candidates that cheat, and on honest ones.",
    "resume": "Go on with a run that was interrupted or killed.",
    "baseline": "Time a module as it is: eager, compiled, autotuned.",
    "archive": "Look at candidates, verdicts and times.",
    "problems": "Look at the problems that ship with the product.",
    "jobs": "Write jobs for a machine with a GPU, and read its results.",
    "worker": "Run a bundle of jobs on this machine's device.",
    "mcp": "Serve a coding agent over the Model Context Protocol.",
    "doctor": "Say what this machine offers, and what to do about what it lacks.",
}
"""Verbs and their one line. A verb is a file of that name in this folder, with a typer app called `app`."""


class _Verbs(TyperGroup):
    """Finds a verb's file when the verb is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"kernelwright.agent.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # The inherited method would import every verb's file to read its first line.
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from kernelwright import __version__

        print(f"kernelwright {__version__}")
        raise typer.Exit


@app.callback()
def cli(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, help="Show the version.")] = False,
) -> None:
    """Give it a PyTorch module, get back a faster one, with a result that can be believed."""


def main() -> None:
    """Run the command line. What goes wrong for a reason that we know is one line on stderr and an exit code."""
    try:
        app(prog_name="kernelwright")
    except UsageError as error:
        _end(str(error), ExitCode.USAGE)
    except EnvironmentFault as error:
        _end(str(error), ExitCode.ENVIRONMENT)
    except KeyboardInterrupt:
        _end("interrupted", ExitCode.INTERRUPTED)


def _end(message: str, code: ExitCode) -> None:
    print(f"kernelwright: {message}", file=sys.stderr)
    sys.exit(int(code))
