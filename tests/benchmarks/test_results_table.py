"""The table of results: what a row must hold, and what becomes of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "results_table.py"
ROW = {
    "metric": "rmsnorm.cpu.speedup_over_eager",
    "value": 2.9731,
    "unit": "x",
    "n": 30,
    "device": "A processor | 2 threads",
    "driver": "",
    "torch": "2.13.0",
    "triton": "3.8.0",
    "date": "2026-12-01",
    "command": "python benchmarks/foundation.py",
}


def run(folder: Path, rows: Any) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = folder / "results.md"
    (folder / "foundation.json").write_text(json.dumps(rows))
    argv = [sys.executable, str(SCRIPT), "--folder", str(folder), "--out", str(out)]
    return subprocess.run(argv, capture_output=True, text=True), out


def test_each_file_becomes_a_table_and_each_row_a_line(tmp_path: Path) -> None:
    other = ROW | {"metric": "orchestration.bytes", "value": 12345678, "unit": "bytes", "driver": "580.1"}
    done, out = run(tmp_path, [ROW | {"low": 2.9, "high": 3.05, "shape": "gpu"}, other])
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert "## foundation" in lines
    first, second = (line for line in lines if line.startswith("| `"))
    assert (
        "`rmsnorm.cpu.speedup_over_eager` (shape gpu) | 2.973 x [2.9, 3.05] | 30 | A processor \\| 2 threads |" in first
    )
    assert "torch 2.13.0, triton 3.8.0 | 2026-12-01 | `python benchmarks/foundation.py`" in first
    assert "12,345,678 bytes" in second
    assert "driver 580.1" in second


@pytest.mark.parametrize("field", ROW)
def test_a_row_that_lacks_a_field_is_refused_and_nothing_written(tmp_path: Path, field: str) -> None:
    done, out = run(tmp_path, [ROW, {k: v for k, v in ROW.items() if k != field}])
    assert done.returncode == 2
    assert "foundation.json: row 2" in done.stderr
    assert done.stderr.rstrip().endswith(f"lacks {field}")
    assert not out.exists()


@pytest.mark.parametrize("rows", [{}, [], [3]])
def test_what_is_no_list_of_rows_is_refused(tmp_path: Path, rows: Any) -> None:
    done, _ = run(tmp_path, rows)
    assert done.returncode == 2
    assert "foundation.json" in done.stderr


def test_the_table_in_the_tree_is_that_of_the_results_in_the_tree(tmp_path: Path) -> None:
    docs, out = SCRIPT.parents[1] / "docs", tmp_path / "results.md"
    argv = [sys.executable, str(SCRIPT), "--folder", str(docs / "results"), "--out", str(out)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (docs / "results.md").read_text() == out.read_text(), "run `make docs`"
