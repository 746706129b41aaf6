"""Write docs/results.md from docs/results/*.json, one table a file. Standard library only.

    python benchmarks/results_table.py [--folder docs/results] [--out docs/results.md]

A file holds a list of rows, each with all of FIELDS. Beside them may stand `low` and `high`, the ends of a 95 %
interval, and `shape`, a label of the problem's SHAPES. The scripts in this folder write the rows (`results.row`);
nothing is typed in by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FIELDS = ("metric", "value", "unit", "n", "device", "driver", "torch", "triton", "date", "command")
COLUMNS = ("metric", "value", "n", "device", "versions", "date", "command")
HEAD = """# Measured results

This file is written by `make docs` from `docs/results/*.json`, and those by the scripts that measured. Each row names
the command that gave it. `n` is how many samples the value is the median of. Brackets hold a 95 % interval.
"""

Row = dict[str, Any]


class BadRow(Exception):
    """A results file that cannot be used: which one, which row, and why."""


def read(path: Path) -> list[Row]:
    """The rows of one file. Raises BadRow for a row that lacks a field."""
    try:
        rows = json.loads(path.read_text())
    except ValueError as error:
        raise BadRow(f"{path}: no JSON: {error}") from None
    if not isinstance(rows, list) or not rows:
        raise BadRow(f"{path}: not a list of rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise BadRow(f"{path}: row {number} is no object")
        missing = [field for field in FIELDS if field not in row]
        if missing:
            raise BadRow(f"{path}: row {number} ({row.get('metric', 'no metric')}) lacks {', '.join(missing)}")
    return rows


def table(topic: str, rows: list[Row]) -> str:
    """One topic as Markdown: a heading and a table."""
    lines = [f"## {topic}", "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
    return "\n".join([*lines, *(_line(_cells(row)) for row in rows)]) + "\n"


def render(folder: Path) -> str:
    """All topics of a folder, in the order of their names."""
    topics = [table(path.stem, read(path)) for path in sorted(folder.glob("*.json"))]
    return "\n".join([HEAD, *(topics or ["No results yet.\n"])])


def _cells(row: Row) -> list[str]:
    interval = f" [{_number(row['low'])}, {_number(row['high'])}]" if "low" in row and "high" in row else ""
    versions = [f"{name} {row[name]}" for name in ("torch", "triton", "driver") if row[name]]
    return [
        f"`{row['metric']}`" + (f" (shape {row['shape']})" if row.get("shape") else ""),
        f"{_number(row['value'])} {row['unit']}{interval}",
        str(row["n"]),
        str(row["device"]),
        ", ".join(versions),
        str(row["date"]),
        f"`{row['command']}`",
    ]


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def main() -> int:
    """Entry point: 0 when the file was written, 2 when a results file cannot be used."""
    parser = argparse.ArgumentParser(description="Write docs/results.md from docs/results/*.json.")
    parser.add_argument("--folder", type=Path, default=Path("docs/results"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    options = parser.parse_args()
    try:
        text = render(options.folder)
    except BadRow as error:
        print(f"results_table: {error}", file=sys.stderr)
        return 2
    options.out.write_text(text)
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
