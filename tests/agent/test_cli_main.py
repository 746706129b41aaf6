"""The command line as a user meets it: in a process of its own, in an empty folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.cli.common import seconds
from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.cli.main import VERBS, exit_code_of
from kernelwright.agent.llm.faults import BudgetSpent, EndpointFault
from kernelwright.kernelbench.errors import EnvironmentFault, KernelwrightError, UsageError

COMMAND = [sys.executable, "-c", "from kernelwright.agent.cli.main import main; main()"]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def test_help_lists_every_verb_and_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from kernelwright.agent.cli.main import main\n"
        "sys.argv = ['kernelwright', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'sqlalchemy', 'langgraph', 'optuna', 'pydantic', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert all(verb in done.stdout for verb in VERBS)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_file_and_its_help(tmp_path: Path, verb: str) -> None:
    done = run(tmp_path, verb, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: kernelwright" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["optimize", "missing.py"], 2, "kernelwright: missing.py: no such file"),
        (
            ["optimize", "core/softmax", "--shape", "huge"],
            2,
            "kernelwright: core/softmax: no shape 'huge'; known: gpu, tiny",
        ),
        (
            ["optimize", "core/softmax", "--device", "tpu"],
            2,
            "kernelwright: device is 'tpu': input should be 'cpu' or 'cuda'",
        ),
        (["optimize", "core/softmax", "--time", "soon"], 2, "kernelwright: --time soon: not a time"),
        (["optimize", "core/softmax", "--max-candidates", "0"], 2, "Invalid value for '--max-candidates'"),
        (["optimize", "core/softmax", "--no-such"], 2, "No such option: --no-such"),
        (["optimize"], 2, "Missing argument"),
        (["no-such-verb"], 2, "No such command 'no-such-verb'"),
        (["resume", "some-run"], 2, "kernelwright: archive.db: no such archive"),
        (["archive", "list"], 2, "kernelwright: archive.db: no such archive"),
        (["jobs", "import", "nowhere"], 2, "is nowhere a bundle made by `kernelwright jobs export`?"),
        (["worker", "nowhere"], 2, "is nowhere a bundle made by `kernelwright jobs export`?"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(
    tmp_path: Path, arguments: list[str], code: int, line: str
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_here_is_the_environment_s_fault(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run(tmp_path, "optimize", "core/softmax", "--device", "cuda")
    assert done.returncode == 3
    assert "use --device cpu" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_problems_as_json(tmp_path: Path) -> None:
    done = run(tmp_path, "problems", "list", "--json")
    found = json.loads(done.stdout)
    assert found["schema"] == "kernelwright.problems/1"
    assert len(found["problems"]) >= 16


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "optimize", "core/softmax"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("generation 0:")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == 130
    (run_folder,) = (tmp_path / "runs").iterdir()
    assert f"kernelwright resume {run_folder.name}" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("90s", 90.0), ("3m", 180.0), ("1.5h", 5400.0)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "-3", "0", "inf", "nan", "3 weeks"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        seconds(text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such file"), ExitCode.USAGE),
        (EnvironmentFault("no compiler"), ExitCode.ENVIRONMENT),
        (BudgetSpent("usd", "$1.0000 spent"), ExitCode.BUDGET_SPENT),
        (EndpointFault("model endpoint http://127.0.0.1: down"), ExitCode.ENDPOINT_DOWN),
        (KernelwrightError("one call failed"), ExitCode.GOAL_NOT_MET),
    ],
)
def test_each_error_has_its_exit_code(error: KernelwrightError, code: ExitCode) -> None:
    assert exit_code_of(error) is code
