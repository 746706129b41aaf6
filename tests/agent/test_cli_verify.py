"""`kernelwright verify` as a person and as a program meet it: in a process of its own, in a folder of its own."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "kernelwright"]
RIGHT = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return e / e.sum(dim=-1, keepdim=True)
"""
WRONG = RIGHT.replace("return e", "return 1.001 * e")
SOFTMAX = ["--ref", "core/softmax", "--shape", "tiny"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the verb runs, and beside it the machine's temporary folder, which must be empty again."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    (home / "right.py").write_text(RIGHT)
    (home / "wrong.py").write_text(WRONG)
    before = {path.name for path in home.iterdir()}
    yield home
    assert {path.name for path in home.iterdir()} >= before
    assert list(temporary.iterdir()) == [], "something was left behind"


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "TMPDIR": str(folder.parent / "temporary"),
        "LANG": "C",
        "LC_ALL": "C",
        "COLUMNS": "80",
    }


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def figures(found: dict[str, Any]) -> list[Any]:
    return [(check["name"], check["figure"]) for check in found["checks"] if "error" in check["name"]]


def test_a_right_candidate_is_timed_and_the_command_repeats_it(folder: Path) -> None:
    done = run(folder, "verify", "right.py", *SOFTMAX, "--baselines", "eager")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "right.py: compiling"
    assert done.stderr.splitlines()[-1] == "right.py: timing"
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.isascii()
    assert "FAIL" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["check", "times", "worst", "bound", "result"]
    assert "random cases" in lines
    assert any(line.startswith("verdict  correct") for line in lines)
    (again,) = (line.removeprefix("again    ") for line in lines if line.startswith("again"))
    words = shlex.split(again)
    assert words[:3] == ["kernelwright", "verify", "right.py"]
    assert "--seed" in words

    first, second = (json.loads(run(folder, *words[1:], "--no-time", "--json").stdout) for _ in range(2))
    assert first["schema"] == "kernelwright.verdict/1"
    assert first["verdict"] == "correct"
    assert first["measurement"] is None
    assert first["seed"] == int(words[words.index("--seed") + 1])
    assert first["environment"]["torch"]
    drawn = [pair for pair in figures(first) if "held" not in pair[0]]
    assert drawn
    assert set(drawn) & set(figures(second)), "the same seed draws the same inputs"


def test_a_wrong_candidate_ends_with_1_and_says_what_failed(folder: Path) -> None:
    done = run(folder, "verify", "wrong.py", *SOFTMAX)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    assert "verdict  incorrect: " in done.stdout
    assert "next     mend what failed" in done.stdout


def test_a_file_without_modelnew_is_a_verdict(folder: Path) -> None:
    (folder / "right.py").write_text("import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n")
    done = run(folder, "verify", "right.py", *SOFTMAX, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 1
    assert found["verdict"] == "compile_error"
    assert "ModelNew" in found["message"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["missing.py", *SOFTMAX], "kernelwright: missing.py: no such file"),
        (["binary.py", *SOFTMAX], "kernelwright: binary.py: not UTF-8 text"),
        ([".", *SOFTMAX], "kernelwright: .: Is a directory"),
        (["right.py", "--ref", "missing.py"], "kernelwright: missing.py: no such file"),
        (["right.py"], "Missing option '--ref'"),
        (["right.py", *SOFTMAX, "--baselines", "eager,best"], "kernelwright: no baseline 'best'"),
        (["right.py", *SOFTMAX, "--timeout", "0"], "kernelwright: the time limit is 0 s"),
        (["right.py", *SOFTMAX, "--backend", "metal"], "Invalid value for '--backend'"),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, arguments: list[str], line: str) -> None:
    (folder / "binary.py").write_bytes(b"\xff\xfe\x00")
    done = run(folder, "verify", *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_device_that_is_not_here_is_the_environment_s_fault(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run(folder, "verify", "right.py", *SOFTMAX, "--device", "cuda")
    assert done.returncode == 3
    assert "use --device cpu" in done.stderr


def test_an_interrupt_ends_it_with_130(folder: Path) -> None:
    (folder / "right.py").write_text(
        RIGHT.replace("import torch\n", "import time\n\nimport torch\n\ntime.sleep(600)\n")
    )
    process = subprocess.Popen(
        [*COMMAND, "verify", "right.py", *SOFTMAX],
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((folder.parent / "temporary").rglob("kernelwright-bench-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
