"""Write docs/commands.md from the command line's own definitions: `python scripts/commands.py [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from kernelwright.agent.cli.main import VERBS, app

HEAD = """# Commands

This file is written by `make docs` from the command line's own definitions: what `kernelwright VERB --help` says.
"""


NOT_OURS = ("help", "install_completion", "show_completion")


def render() -> str:
    """The whole file."""
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="kernelwright")
    parts = [HEAD]
    for verb in VERBS:
        parts += _command(context, group.get_command(context, verb))
    return "\n".join(parts)


def _command(parent: Any, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name, parent=parent)
    yield f"## {' '.join([context.command_path, *command.collect_usage_pieces(context)[1:]])}\n"
    yield f"{_text(command.help)}\n"
    records = [p.get_help_record(context) for p in command.params if p.name not in NOT_OURS]
    rows = [f"| `{_cell(option)}` | {_cell(meaning)} |" for option, meaning in filter(None, records)]
    if rows:
        yield "\n".join(["| | |", "| --- | --- |", *rows, ""])
    for child in getattr(command, "commands", {}).values():
        yield from _command(context, child)


def _text(text: str | None) -> str:
    return "\n".join(line.strip() for line in (text or "").strip().splitlines())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "commands.md"
    target.write_text(render())
    print(f"wrote {target}")
