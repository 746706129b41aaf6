"""The console entry. Each verb is a file; none is imported before it is called, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.llm.faults import BudgetSpent, EndpointFault
from kernelwright.kernelbench.errors import EnvironmentFault, KernelwrightError, UsageError

VERBS = {
    "optimize": "Make a module faster: propose, compile, verify, measure, keep the best.",
    "verify": "Judge one candidate against a reference, with all the evidence.",
    "bench": "Time candidates side by side, and say which are really faster.",
    "profile": "Say what limits a candidate: memory, arithmetic, latency, launches, registers.",
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
    # Asked to end in either way, it ends in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(prog_name="kernelwright", standalone_mode=False)
    except KernelwrightError as error:
        _end(str(error), exit_code_of(error))
    except TyperException as error:
        _refuse(error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        _end("interrupted", ExitCode.INTERRUPTED)
    sys.exit(int(code or 0))


def _refuse(error: TyperException) -> NoReturn:
    """In one line: its own way to show itself takes four. Without any word the help is what is wanted."""
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    if said.startswith("Usage:"):
        print(said, file=sys.stderr)
        sys.exit(int(ExitCode.USAGE))
    context = getattr(error, "ctx", None)
    _end(f"{said} See: {context.command_path} --help" if context is not None else said, ExitCode.USAGE)


EXIT_CODES: tuple[tuple[type[KernelwrightError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (BudgetSpent, ExitCode.BUDGET_SPENT),
    (EndpointFault, ExitCode.ENDPOINT_DOWN),
    (EnvironmentFault, ExitCode.ENVIRONMENT),
)
"""The first that fits counts: an endpoint that is down is a fault of the environment too."""


def exit_code_of(error: KernelwrightError) -> ExitCode:
    """What an error that nobody caught ends the command with."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), ExitCode.GOAL_NOT_MET)


def _end(message: str, code: ExitCode) -> NoReturn:
    print(f"kernelwright: {message}", file=sys.stderr)
    sys.exit(int(code))
