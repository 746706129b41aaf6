"""Ranking candidates: a real comparison through the worker, and what the rule makes of known samples."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.comparison import Benched, Entry, _ranked
from kernelwright.agent.verification import Terms, candidate_of
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.measure import stats
from kernelwright.stages.types import Backend, Environment, Measurement, Status, Timing, Verdict

MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)
WOBBLE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.002, 0.998)


def entry(name: str, ms: float, status: Status = Status.CORRECT) -> Entry:
    """A candidate whose rounds took about `ms`, beside an eager of one millisecond."""
    samples, eager = tuple(ms * w for w in WOBBLE), tuple(WOBBLE[::-1])
    measurement = Measurement(
        Timing(samples, ms, 10),
        {"eager": Timing(eager, 1.0, 10)},
        {"eager": stats.speedup(eager, samples)},
        "by hand",
    )
    result = JobResult(
        name, "", Verdict(status), MACHINE, measurement=measurement if status is Status.CORRECT else None
    )
    return Entry(name, candidate_of(name, Backend.TORCH), result)


def ranked(*entries: Entry) -> Benched:
    return _ranked(entries, Problem("p", "", "p.py"), Terms(seed=1), "")


def test_what_cannot_be_told_apart_shares_a_rank() -> None:
    found = ranked(entry("slow", 1.4), entry("a", 0.5), entry("b", 0.502), entry("wrong", 0.1, Status.INCORRECT))
    assert [(e.name, e.rank) for e in found.entries] == [("a", 1), ("b", 1), ("slow", 3), ("wrong", None)]
    assert found.indistinguishable == (("a", "b"),)
    assert [e.name for e in found.gains] == ["a", "b"]
    assert found.exit_code is ExitCode.GOAL_MET


def test_no_gain_is_1_and_tampering_is_6_whatever_else_there_is() -> None:
    assert ranked(entry("same", 1.0)).exit_code is ExitCode.GOAL_NOT_MET
    assert ranked(entry("fast", 0.5), entry("bad", 0.5, Status.TAMPERED)).exit_code is ExitCode.TAMPERING


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6))
def test_ranks_follow_the_times(times: list[float]) -> None:
    found = ranked(*(entry(f"c{i}", ms) for i, ms in enumerate(times)))
    ranks = [e.rank for e in found.entries]
    assert ranks[0] == 1
    assert ranks == sorted(ranks, key=lambda rank: rank or 0)
    assert all(rank is not None and rank <= place for place, rank in enumerate(ranks, 1))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    folder = tmp_path_factory.mktemp("bench")
    honest = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    (folder / "same.py").write_text(honest.format("torch.softmax(x, dim=-1)"))
    (folder / "slow.py").write_text(honest.format("[torch.softmax(x, dim=-1) for _ in range(6)][0]"))
    (folder / "wrong.py").write_text(honest.format("torch.softmax(x, dim=-1) * 1.01"))
    files = ["slow.py", "same.py", "same.py", "wrong.py"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "kernelwright",
            "bench",
            *files,
            "--ref",
            "core/softmax",
            "--baselines",
            "eager",
            "--json",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_candidates_are_ranked_and_the_wrong_one_refused(compared: "subprocess.CompletedProcess[str]") -> None:
    found = json.loads(compared.stdout)
    assert compared.returncode == found["exit_code"] == 1, compared.stderr
    assert found["schema"] == "kernelwright.bench/1"
    by_name = {c["name"]: c for c in found["candidates"]}
    assert list(by_name)[2:] == ["slow.py", "wrong.py"]
    assert by_name["slow.py"]["rank"] == 3
    assert by_name["wrong.py"]["verdict"] == "incorrect"
    assert by_name["wrong.py"]["median_ms"] is None
    assert set(by_name["same.py"]["speedups"]) == {"eager"}
    assert by_name["same.py"]["hash"] == by_name["same.py (2)"]["hash"]


@pytest.mark.parametrize("arguments", [["missing.py", "--ref", "core/softmax"], ["--ref", "core/softmax"]])
def test_what_cannot_be_used_is_2(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", "bench", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
