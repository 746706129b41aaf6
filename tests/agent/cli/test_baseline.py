"""`kernelwright baseline`, in a process of its own and an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Precision
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.archive import Archive
from kernelwright.stages.archive.baselines import find
from kernelwright.stages.codec import from_json
from kernelwright.stages.types import Environment

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kernelwright", "baseline", *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def test_a_reference_is_timed_beside_itself_and_its_times_are_stored(tmp_path: Path) -> None:
    done = run(tmp_path, "core/softmax", "--shape", "tiny", "--modes", "eager", "--rounds", "4", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "kernelwright.baseline/1"
    assert list(told["baselines"]) == ["eager"]
    assert told["missing"] == []
    again = told["same_again"]["over_eager"]
    assert again["low"] <= again["median"] <= again["high"]
    assert "eager again" in done.stderr
    problem = from_spec("core/softmax", shape="tiny")
    with Archive.open(tmp_path / "archive.db") as archive:
        stored = find(archive, problem.hash, from_json(Environment, told["environment"]), Precision.STRICT)
    assert stored["eager"].timing.median_ms == told["baselines"]["eager"]["timing"]["median_ms"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["core/nothing"], "core/nothing: no such problem"),
        (["core/softmax", "--modes", "eager,fast"], "--modes eager,fast: choose from eager, compile, max-autotune"),
        (["core/softmax", "--precision", "half"], "--precision half: choose from strict, tf32, task"),
    ],
)
def test_what_cannot_be_timed_is_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert not (tmp_path / "archive.db").exists()
