"""`kernelwright profile` as a person and as a program meet it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.kernelbench.hacks import FOLDER

CPP = FOLDER / "ok_cpp_kernel"
REF = ["--ref", str(CPP / "reference.py")]


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "TMPDIR": str(temporary),
        "LANG": "C",
        "LC_ALL": "C",
    }
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", "profile", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert list(temporary.iterdir()) == [], "something was left behind"
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text((CPP / "candidate.py").read_text())
    (tmp_path / "broken.py").write_text(
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        raise ValueError('no')\n"
    )
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    return tmp_path


def test_a_person_gets_kernels_a_bottleneck_and_the_command(folder: Path) -> None:
    done = run(folder, "kernel.py", *REF)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "kernel.py: profiling"
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["kernel", "whose", "a", "call", "microseconds", "share"]
    assert lines[1].split()[:3] == ["chain", "own", "1"]
    assert any(line.startswith("bottleneck ") for line in lines)
    assert lines[-1].startswith("again      kernelwright profile kernel.py --ref ")


def test_a_program_gets_one_object(folder: Path) -> None:
    done = run(folder, "kernel.py", *REF, "--json", "--seed", "5")
    found = json.loads(done.stdout)
    assert found["schema"] == "kernelwright.profile/1"
    assert found["exit_code"] == done.returncode == 0
    assert found["tier"] == "torch.profiler"
    assert found["verdict"] == "unknown"
    assert found["kernels"][0]["name"] == "chain"
    assert found["finding"]["bottleneck"] in found["summary"]
    assert found["command"].endswith("--seed 5")


def test_a_candidate_that_does_not_run_ends_with_1(folder: Path) -> None:
    done = run(folder, "broken.py", *REF)
    assert done.returncode == 1
    assert "verdict    crash: ValueError: no" in done.stdout
    assert "candidate_" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["missing.py", *REF], "kernelwright: missing.py: no such file"),
        (["binary.py", *REF], "kernelwright: binary.py: not UTF-8 text"),
        (["kernel.py", "--ref", "missing.py"], "kernelwright: missing.py: no such file"),
        (["kernel.py"], "Missing option '--ref'"),
        (["kernel.py", *REF, "--timeout", "0"], "kernelwright: the time limit is 0 s"),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, arguments: list[str], line: str) -> None:
    done = run(folder, *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_device_that_is_not_here_is_the_environment_s_fault(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run(folder, "broken.py", *REF, "--device", "cuda")
    assert done.returncode == 3
    assert "no device cuda" in done.stderr
