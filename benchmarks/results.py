"""Rows of docs/results/*.json, written by the script that measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kernelwright.stages import results
from kernelwright.stages.results import write
from kernelwright.stages.types import Environment

__all__ = ["row", "write"]


def row(metric: str, value: float, unit: str, n: int, where: Environment, **more: Any) -> dict[str, Any]:
    """One measured figure with all that it takes to place it, the script's command among it."""
    return results.row(metric, value, unit, n, where, _command(), **more)


def _command() -> str:
    """What was typed, from the project's folder; of files elsewhere only the name."""
    script, *arguments = sys.argv
    return " ".join(["python", f"benchmarks/{Path(script).name}", *(_portable(a) for a in arguments)])


def _portable(argument: str) -> str:
    return Path(argument).name if Path(argument).is_absolute() else argument
