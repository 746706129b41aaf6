"""A table on standard output: drawn to fit a terminal, plain aligned text with nothing cut off for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "
SHORTEST_CELL = 12
"""A column that would be narrower than this is left out rather than shortened."""

Cells = Sequence[str]


@dataclass(frozen=True)
class Column:
    """A column's title, and where its cells stand."""

    title: str
    right: bool = False
    """Numbers stand at the right."""


def show(columns: Sequence[Column], rows: Sequence[Cells], indent: int = 0) -> None:
    """Print rows under their columns. On a terminal the last columns go first where there is no room."""
    if sys.stdout.isatty():
        _draw(columns, rows, indent)
    else:
        for line in plain(columns, rows):
            print(" " * indent + line)


def plain(columns: Sequence[Column], rows: Sequence[Cells]) -> list[str]:
    """Aligned lines, the titles first; an empty cell is a dash."""
    lines = [[column.title for column in columns], *([cell or "-" for cell in row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        GAP.join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def fitting(wanted: Sequence[int], room: int) -> list[int]:
    """Widths of as many columns as fit into `room`, counted from the first; the last of them may be shortened."""
    widths: list[int] = []
    for width in wanted:
        left = room - sum(widths) - len(GAP) * len(widths)
        if width > left:
            return [*widths, left] if left >= SHORTEST_CELL else widths
        widths.append(width)
    return widths


def _draw(columns: Sequence[Column], rows: Sequence[Cells], indent: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    wanted = [max(map(len, cells)) for cells in zip([c.title for c in columns], *rows, strict=True)]
    widths = fitting(wanted, console.width - indent)
    drawn = Table(box=None, padding=(0, len(GAP), 0, 0), pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=False):
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        # Text, since brackets in a plain string are rich's markup.
        drawn.add_row(*map(Text, row[: len(widths)]))
    console.print(Padding(drawn, (0, 0, 0, indent)))
