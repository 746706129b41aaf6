"""`kernelwright problems check`: whether a problem can be graded, before any time is spent on it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from kernelwright.agent.cli.main import main; main()", "problems", "check"]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn({rows}, 64)]


def get_init_inputs():
    return []


{more}
"""


def check(
    folder: Path, result: str, *options: str, rows: str = "16", more: str = ""
) -> "subprocess.CompletedProcess[str]":
    path = folder / "task.py"
    path.write_text(SOURCE.format(result=result, rows=rows, more=more))
    return subprocess.run([*COMMAND, str(path), *options], env=ENVIRONMENT, capture_output=True, text=True)


def test_a_good_problem_is_gradable(tmp_path: Path) -> None:
    done = check(tmp_path, "torch.softmax(x, -1)")
    assert done.returncode == 0, done.stderr
    assert "task.py: gradable" in done.stdout
    assert "pass  refuses zeros" in done.stdout
    assert "planted faults caught: " in done.stdout


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("torch.softmax(x, -1).sum(-1)", "FAIL  output 0 depends on the inputs"),
        ("self.drop(x)", "self.eval()"),
    ],
)
def test_one_that_proves_nothing_is_not_and_the_table_says_why(tmp_path: Path, result: str, words: str) -> None:
    done = check(tmp_path, result)
    assert done.returncode == 1, done.stderr
    assert "task.py: ungradable" in done.stdout
    assert words in done.stdout


def test_json_is_one_object(tmp_path: Path) -> None:
    done = check(tmp_path, "x * 2", "--json", more='PRECISION = "task"')
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["schema"] == "kernelwright.check/1"
    assert found["gradable"] is True
    assert found["precision"] == "task"
    assert found["faults"]["planted"] == len(found["faults"]["caught"]) + len(found["faults"]["missed"])
    assert {"name", "finds"} == set(found["cases"][0])


@pytest.mark.parametrize(
    ("rows", "more", "code", "words"),
    [
        ("16", 'PRECISION = "rough"', 2, "PRECISION is 'rough'; known: 'strict', 'tf32', 'task'"),
        ("2**40", "", 3, "GiB on cpu"),
        ("None", "", 2, "task.py:15: get_inputs raises"),
    ],
)
def test_what_cannot_be_tried_is_one_line(tmp_path: Path, rows: str, more: str, code: int, words: str) -> None:
    done = check(tmp_path, "x * 2", rows=rows, more=more)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
