"""Rows of docs/results/*.json, written by the script that measured."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelwright.stages.types import Environment


def row(metric: str, value: float, unit: str, n: int, where: Environment, **more: Any) -> dict[str, Any]:
    """One measured figure with all that it takes to place it."""
    return {
        "metric": metric,
        "value": round(value, 4),
        "unit": unit,
        "n": n,
        "device": where.device_name,
        "driver": where.driver,
        "torch": where.torch,
        "triton": where.triton,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "command": _command(),
        **more,
    }


def _command() -> str:
    """What was typed, from the project's folder; of files elsewhere only the name."""
    script, *arguments = sys.argv
    return " ".join(["python", f"benchmarks/{Path(script).name}", *(_portable(a) for a in arguments)])


def _portable(argument: str) -> str:
    return Path(argument).name if Path(argument).is_absolute() else argument


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the same metrics in the file, keep the others."""
    old = json.loads(path.read_text()) if path.exists() else []
    new = {r["metric"] for r in rows}
    kept = [r for r in old if r["metric"] not in new] + rows
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sorted(kept, key=lambda r: r["metric"]), indent=1) + "\n")
