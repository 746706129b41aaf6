"""What the verbs share: options that several of them have, and JSON on standard output."""

from __future__ import annotations

import json as json_module
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.kernelbench.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output; prose goes to stderr.")]
ArchivePath = Annotated[Path, typer.Option("--archive", help="The database of candidates, verdicts and times.")]
DEFAULT_ARCHIVE = Path("archive.db")

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """`90`, `90s`, `3m` or `1h` in seconds. Raises UsageError for anything else."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        value = float(number) * UNITS[unit]
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise UsageError(f"--time {text}: not a time; write for example 90, 90s, 3m or 1h")
    return value


def emit(value: dict[str, Any]) -> None:
    """Print one JSON object."""
    print(json_module.dumps(value, indent=2))


def existing_archive(path: Path) -> Path:
    """The path, if there is an archive. Raises UsageError otherwise: reading must not create one."""
    if not path.exists():
        raise UsageError(f"{path}: no such archive; `kernelwright optimize` makes one, --archive names another")
    return path


def fold(text: str, console: Console, indent: int) -> list[str]:
    """Text as lines that fit a terminal beside an indent; one line, whatever its length, for a pipe."""
    if not console.is_terminal:
        return [text]
    return textwrap.wrap(text, max(console.width - indent, 20), break_on_hyphens=False) or [""]
