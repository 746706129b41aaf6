"""The A/A script: two real comparisons, a log that goes on, and the figures made of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
LINE = {
    "problem": "softmax",
    "seed": 1,
    "mark": "copy 0",
    "status": "correct",
    "message": "",
    "ratio": {"median": 1.0, "low": 0.98, "high": 1.02},
    "environment": {
        "device": "cpu",
        "device_name": "a processor",
        "driver": "",
        "torch": "2.13.0",
        "triton": "3.8.0",
        "python": "3.11.7",
        "threads": 2,
    },
}
WIN = LINE | {"ratio": {"median": 1.1, "low": 1.03, "high": 1.2}}
REFUSED = LINE | {"status": "incorrect", "message": "timed call: wrong", "ratio": None}
ON_GPU = LINE | {"environment": LINE["environment"] | {"device": "cuda", "device_name": "a GPU"}}  # type: ignore[operator]


def aa(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "benchmarks" / "aa.py"), *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def write_log(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_comparisons_are_logged_and_a_second_run_goes_on(tmp_path: Path) -> None:
    wanted = ("run", "cpu", "--log", "aa.jsonl", "--rounds", "2", "--problems", "token_mean")
    for count in (1, 2, 2):
        done = aa(tmp_path, *wanted, "--count", str(count))
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in (tmp_path / "aa.jsonl").read_text().splitlines()]
        assert [line["mark"] for line in lines] == [f"copy {i}" for i in range(count)]
    assert all(line["status"] == "correct" and line["ratio"]["low"] <= line["ratio"]["high"] for line in lines)


def test_no_time_means_no_comparison(tmp_path: Path) -> None:
    done = aa(tmp_path, "run", "cpu", "--time", "-1", "--log", "aa.jsonl")
    assert "0 of 500" in done.stdout
    assert not (tmp_path / "aa.jsonl").exists()


def test_the_figures_are_rates_with_their_upper_bounds(tmp_path: Path) -> None:
    cpu = write_log(tmp_path / "cpu.jsonl", *[LINE] * 97, WIN, *[LINE] * 2, REFUSED)
    cpu.write_text(cpu.read_text() + '{"problem": "cut o')
    write_log(tmp_path / "gpu.jsonl", *[ON_GPU] * 200)
    done = aa(tmp_path, "report", "cpu.jsonl", "gpu.jsonl", "--out", "rows.json")
    assert done.returncode == 0, done.stderr
    assert "1 false wins above 1.02 in 300" in done.stdout
    rows = {r["metric"]: r for r in json.loads((tmp_path / "rows.json").read_text())}
    assert (rows["aa.cpu.false_win_rate"]["value"], rows["aa.cpu.false_win_rate"]["n"]) == (0.01, 100)
    assert rows["aa.cpu.false_win_rate"]["high"] == pytest.approx(0.0466, abs=1e-3)
    assert rows["aa.cuda.false_win_rate"]["value"] == 0.0
    assert rows["aa.cuda.false_win_rate"]["high"] == pytest.approx(1 - 0.05 ** (1 / 200), abs=1e-5)
    assert rows["aa.cpu.refused"]["value"] == 1
    assert rows["aa.false_win_rate"]["device"] == "a processor"
