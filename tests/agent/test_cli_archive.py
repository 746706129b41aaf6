"""`kernelwright archive`, as a person at a terminal, a script and a pipe meet it: always in a process of its own."""

import hashlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import CONFIRM, Archive
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.types import (
    Backend,
    Candidate,
    Check,
    Compilation,
    Environment,
    KernelResources,
    Measurement,
    Ratio,
    Status,
    Timing,
    Verdict,
)

ENTRY = "from kernelwright.agent.cli.main import main; main()"
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

PROBLEM = Problem("softmax", "class Model: ...", "core/softmax", "tiny")
FAST = Candidate(
    "# größer\nclass ModelNew: ...", Backend.TRITON, "builtin", "rows=[4]", (), "triton.fused", {"rows": 4}
)
WRONG = Candidate("# wrong\n", Backend.CPP, "builtin", "block=64", (FAST.hash,), "cpp.fused", {"block": 64})
MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)


def fast(speedup: float) -> JobResult:
    checks = (
        Check("case 0", True, 2e-7, 1e-6),
        Check("timed call", True, 1e-7, 1e-6, "the better one"),
        Check("timed call", True, 9e-7, 1e-6, "the worse one"),
    )
    measurement = Measurement(
        Timing((1.0,), 1.0, 3),
        {"eager": Timing((2.5,), 2.5, 3)},
        {"eager": Ratio(speedup, speedup - 0.1, speedup + 0.1)},
        "a steady clock",
    )
    compilation = Compilation(True, Backend.TRITON, 0.3, resources=(KernelResources("rows_kernel", "sm_90", 40, 512),))
    return JobResult("key", FAST.hash, Verdict(Status.CORRECT, "", checks), MACHINE, compilation, measurement)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("archive")
    with Archive.open(made / "archive.db") as archive:
        archive.add_problem(PROBLEM, OpInfo(Graph((), (), (), "single"), "softmax", "", 7, 4096, "export"))
        archive.start_run("run-1", PROBLEM, "cpu", {})
        archive.add_proposals("run-1", 0, [FAST, WRONG])
        archive.add_result("run-1", fast(2.6))
        archive.add_result("run-1", fast(2.5), CONFIRM)
        wrong = Verdict(Status.INCORRECT, "row 3 is off\nby one", (Check("case 0", False, 4.0, 1e-6, "row 3"),))
        archive.add_result("run-1", JobResult("key", WRONG.hash, wrong, MACHINE))
    return made


def kernelwright(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, check=False
    )


def on_terminal(folder: Path, *arguments: str, columns: int) -> str:
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, *arguments], cwd=folder, env=environment, stdout=theirs, stdin=theirs
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed.
            break
        if not chunk:
            break
        printed += chunk
    os.close(ours)
    assert process.wait() == 0
    return printed.decode()


def test_a_pipe_gets_plain_aligned_lines_with_nothing_cut_off(folder: Path) -> None:
    done = kernelwright(folder, "archive", "list")
    assert (done.returncode, done.stderr) == (0, b"")
    title, first, second = done.stdout.decode().splitlines()
    assert first.startswith(FAST.hash[:12])
    assert "2.50x [2.40, 2.60]" in first
    for column, cell in {"verdict": "correct", "stage": "confirm", "problem": "softmax:tiny", "run": "run-1"}.items():
        assert first[title.index(f"  {column}  ") + 2 :].startswith(cell)
    assert second.startswith(WRONG.hash[:12])
    assert "incorrect" in second
    assert "\x1b" not in title + first + second


def test_a_terminal_gets_what_fits_and_brackets_stay_brackets(folder: Path) -> None:
    wide = on_terminal(folder, "archive", "list", columns=200)
    assert "rows=[4]" in wide
    assert "run-1" in wide
    narrow = on_terminal(folder, "archive", "list", columns=60)
    assert "2.50x [2.40, 2.60]" in narrow
    assert "run-1" not in narrow
    assert max(len(line.rstrip()) for line in narrow.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()) <= 60


def test_a_script_gets_one_object(folder: Path) -> None:
    done = kernelwright(folder, "archive", "list", "--json", "--correct")
    listed = json.loads(done.stdout)
    assert listed["schema"] == "kernelwright.archive/1"
    (row,) = listed["candidates"]
    assert (row["hash"], row["status"], row["stage"]) == (FAST.hash, "correct", "confirm")
    assert row["speedup"] == {"median": 2.5, "low": 2.4, "high": 2.6}
    assert row["created_at"].endswith("+00:00")
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("narrowed", "shown"),
    [
        (["--problem", "core/softmax", "--backend", "cpp", "--status", "incorrect", "--device", "cpu"], 1),
        (["--problem", "core/softmax", "--confirmed", "--device", "cuda"], 0),
        (["--limit", "1"], 1),
    ],
)
def test_options_narrow_the_list(folder: Path, narrowed: list[str], shown: int) -> None:
    done = kernelwright(folder, "archive", "list", *narrowed)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == (shown + 1 if shown else 0)
    assert (b"no candidate in archive.db is like that" in done.stderr) == (shown == 0)
    assert (b"the first 1; --limit shows more" in done.stderr) == ("--limit" in narrowed)


def test_show_tells_the_whole_story(folder: Path) -> None:
    done = kernelwright(folder, "archive", "show", FAST.hash[:8])
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    for expected in (
        f"candidate  {FAST.hash}",
        "problem    softmax (core/softmax, shape tiny)",
        "back end   triton, template triton.fused, by builtin",
        "proposed   run run-1, generation 0, slot 0",
        "search of run run-1: correct",
        "confirm of run run-1: correct",
        "2.50x [2.40, 2.60] over eager",
        "candidate 1 ms, eager 2.5 ms",
        "a steady clock",
        "the worse one",
        "rows_kernel",
        f"led to  {WRONG.hash[:12]}",
    ):
        assert expected in text
    assert "the better one" not in text


def test_show_gives_a_rejection_with_its_reason(folder: Path) -> None:
    text = kernelwright(folder, "archive", "show", WRONG.hash[:8]).stdout.decode()
    assert "search of run run-1: incorrect" in text
    assert "  row 3 is off\n  by one\n" in text
    assert f"from  {FAST.hash[:12]}  2.50x [2.40, 2.60]" in text


def test_the_source_comes_out_byte_for_byte(folder: Path) -> None:
    done = kernelwright(folder, "archive", "show", FAST.hash[:8], "--source")
    assert hashlib.sha256(done.stdout).hexdigest() == FAST.hash


def test_show_as_json_holds_the_evidence(folder: Path) -> None:
    found = json.loads(kernelwright(folder, "archive", "show", FAST.hash[:8], "--json").stdout)
    assert (found["schema"], found["hash"]) == ("kernelwright.archive/1", FAST.hash)
    assert found["candidate"]["source"] == FAST.source
    assert [e["stage"] for e in found["evaluations"]] == ["search", "confirm"]
    assert found["evaluations"][0]["result"]["verdict"]["checks"][2]["figure"] == 9e-7
    assert [child["hash"] for child in found["children"]] == [WRONG.hash]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["list", "--archive", "no.db"], "no.db: no such archive"),
        (["show", "abc"], "'abc' names no candidate"),
        (["show", FAST.hash[::-1]], "no candidate's hash begins with"),
        (["show", FAST.hash, "--source", "--json"], "--source and --json exclude each other"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_exit_2(folder: Path, arguments: list[str], line: str) -> None:
    done = kernelwright(folder, "archive", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    (only,) = done.stderr.decode().splitlines()
    assert only.startswith(f"kernelwright: {line}")
    assert not (folder / "no.db").exists()
