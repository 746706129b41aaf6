"""Rows of measured figures, as docs/results/*.json holds them. Standard library only: written on bare machines too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelwright.stages.types import Environment


def row(metric: str, value: float, unit: str, n: int, where: Environment, command: str, **more: Any) -> dict[str, Any]:
    """One measured figure with all that it takes to place it; `n` is how many samples it stands for."""
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
        "command": command,
        **more,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the same metrics on the same device in the file, keep the others."""
    old = json.loads(path.read_text()) if path.exists() else []
    new = {_key(r) for r in rows}
    kept = [r for r in old if _key(r) not in new] + rows
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sorted(kept, key=_key), indent=1) + "\n")


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["metric"], row["device"]
