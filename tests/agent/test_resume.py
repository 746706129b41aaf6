"""A run that is killed again and again ends as if nothing had happened."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.outcome import outcome
from kernelwright.agent.run import open_again
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.archive import Archive

SCRIPT = Path(__file__).with_name("recorded_run.py")
COMPARED = {
    "proposals": "SELECT generation, slot, attempt, candidate_hash FROM proposals ORDER BY 1, 2, 3",
    "verdicts": "SELECT candidate_hash, stage, status, message, checks FROM verdicts ORDER BY 1, 2",
    "measurements": "SELECT candidate_hash, stage, speedup_over_eager, data FROM measurements ORDER BY 1, 2",
    "lineage": "SELECT child, parent FROM lineage ORDER BY 1, 2",
    "runs": "SELECT status FROM runs",
}


def begin(folder: Path, *run: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *run], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def contents(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(folder / "archive.db") as database:
        return {name: database.execute(query).fetchall() for name, query in COMPARED.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert begin(folder).wait(timeout=120) == 0
    return folder


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_and_resumed_run_ends_like_an_undisturbed_one(undisturbed: Path, tmp_path: Path, kills: int) -> None:
    moments = random.Random(kills)
    process = begin(tmp_path)
    for _ in range(kills):
        time.sleep(moments.uniform(0.0, 0.8 / kills))
        process.send_signal(signal.SIGKILL)
        process.wait()
        run = (tmp_path / "run").read_text()
        with Archive.open(tmp_path / "archive.db") as archive:
            if archive.run(run).status == "done":
                break
            kept = {r.candidate.hash for r in archive.results_of(run, "search")}
        told = [
            line.split() for line in (tmp_path / "acknowledged").read_text().splitlines(keepends=True) if "\n" in line
        ]
        assert kept >= {name for name, confirmed in told if confirmed == "False"}
        process = begin(tmp_path, run)
    assert process.wait(timeout=120) in (0, -signal.SIGKILL)
    assert contents(tmp_path) == contents(undisturbed)


def test_the_recorded_run_reaches_a_winner(undisturbed: Path) -> None:
    run = (undisturbed / "run").read_text()
    with Archive.open(undisturbed / "archive.db") as archive:
        found = outcome(archive, run)
    assert len(found.searched) == 10
    assert found.winner is not None
    assert found.winner.stage == "confirm"


def test_a_finished_run_says_so(undisturbed: Path) -> None:
    run = (undisturbed / "run").read_text()
    with pytest.raises(UsageError, match=r"is finished: see .*report\.html"):
        open_again(run, undisturbed / "archive.db")


def test_an_unknown_run_is_named(undisturbed: Path) -> None:
    with pytest.raises(UsageError, match="no run nothing-of-the-kind"):
        open_again("nothing-of-the-kind", undisturbed / "archive.db")
