import dataclasses
import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import CONFIRM, SEARCH, Archive
from kernelwright.stages.archive import migrations as migrations_package
from kernelwright.stages.archive.migrations import HEAD, is_mapped
from kernelwright.stages.archive.models import Base
from kernelwright.stages.codec import from_json, to_json
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

PROBLEM = Problem("doubling", "class Model: ...", "doubling.py")
INFO = OpInfo(Graph((), (), (), "single"), "mul[f32 r12]", "def forward(x): ...", 7, 4096, "export")
CPU = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)


def candidate(number: int, parents: tuple[str, ...] = ()) -> Candidate:
    return Candidate(
        f"# candidate {number}",
        Backend.CPP,
        "builtin",
        "fuse everything",
        parents,
        "cpp.fused",
        {"unroll": number, "stream": True, "exp": "poly"},
        ("aten.mm.default",),
    )


def result(of: Candidate, speedup: float = 2.0, status: Status = Status.CORRECT, key: str = "r/0/0") -> JobResult:
    timing = Timing((1.0 / speedup, 1.1 / speedup), 1.05 / speedup, 12)
    measurement = Measurement(
        timing, {"eager": Timing((1.0, 1.1), 1.05, 6)}, {"eager": Ratio(speedup, speedup - 0.1, speedup + 0.1)}, "clock"
    )
    return JobResult(
        key,
        of.hash,
        Verdict(status, "" if status is Status.CORRECT else "wrong", (Check("case 0", True, 1e-7, 1e-6, "fine"),)),
        CPU,
        Compilation(True, Backend.CPP, 0.3, False, "warning", (KernelResources("k", "x86-64"),)),
        measurement if status is Status.CORRECT else None,
        seconds={"compile": 0.3, "verify": 0.2},
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.open(tmp_path / "archive.db")
    made.add_problem(PROBLEM, INFO)
    made.start_run("run", PROBLEM, "cpu", {"seed": 1})
    return made


def test_what_is_written_comes_back_as_it_was(archive: Archive) -> None:
    first, second = candidate(1), candidate(2, parents=(candidate(1).hash,))
    archive.add_proposals("run", 0, [first])
    archive.add_proposals("run", 1, [second])
    assert archive.add_result("run", result(second))
    assert archive.add_result("run", result(first, status=Status.INCORRECT))
    records = archive.results_of("run", SEARCH)
    assert [(r.candidate, r.result) for r in records] == [
        (first, result(first, status=Status.INCORRECT)),
        (second, result(second)),
    ]
    assert archive.problem(PROBLEM.hash) == PROBLEM
    assert archive.result("run", second.hash, SEARCH) == result(second)
    assert archive.result("run", second.hash, CONFIRM) is None


figures = st.none() | st.floats(allow_nan=False)
checks = st.builds(Check, st.text(), st.booleans(), figures, figures, st.text())


@given(st.lists(checks, max_size=4).map(tuple))
def test_evidence_survives_json_with_infinities(found: tuple[Check, ...]) -> None:
    verdict = Verdict(Status.INCORRECT, "no", found)
    assert from_json(Verdict, to_json(verdict)) == verdict


def test_a_verdict_is_written_once_a_stage(archive: Archive) -> None:
    first = candidate(1)
    archive.add_proposals("run", 0, [first])
    assert archive.add_result("run", result(first, speedup=2.0))
    assert not archive.add_result("run", result(first, speedup=9.0))
    assert archive.add_result("run", result(first, speedup=1.9), CONFIRM)
    (record,) = archive.results_of("run", SEARCH)
    assert record.result.measurement is not None
    assert record.result.measurement.speedups["eager"].median == 2.0


def test_proposing_again_changes_nothing_and_pending_is_what_has_no_verdict(archive: Archive) -> None:
    some = [candidate(n) for n in range(3)]
    archive.add_proposals("run", 0, some)
    archive.add_proposals("run", 0, [candidate(9)])
    assert archive.proposals_of("run", 0) == some
    archive.add_result("run", result(some[1]))
    assert archive.pending("run", 0) == [some[0], some[2]]


def test_the_views_answer_plain_sqlite(archive: Archive, tmp_path: Path) -> None:
    first = candidate(1)
    archive.add_proposals("run", 0, [first])
    archive.add_result("run", result(first))
    archive.add_result("run", result(first, speedup=1.9), CONFIRM)
    with sqlite3.connect(tmp_path / "archive.db") as plain:
        row = plain.execute("SELECT problem, backend, speedup_over_eager FROM confirmed_kernels").fetchone()
        assert row == ("doubling", "cpp", 1.9)
        assert plain.execute("SELECT proposed, judged, correct, speedup_over_eager FROM run_summary").fetchone() == (
            1,
            1,
            1,
            1.9,
        )
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_tables_and_migrations_agree(archive: Archive) -> None:
    with archive.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": is_mapped})
        assert compare_metadata(context, Base.metadata) == []
    scripts = ScriptDirectory(str(Path(migrations_package.__file__).parent))
    assert scripts.get_current_head() == HEAD


def test_a_newer_database_is_refused_in_one_line(archive: Archive, tmp_path: Path) -> None:
    archive.close()
    with sqlite3.connect(tmp_path / "archive.db") as plain:
        plain.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UsageError, match=r"archive\.db: written by a newer version of kernelwright \(schema 9999\)"):
        Archive.open(tmp_path / "archive.db")


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to have a header" * 20)
    with pytest.raises(UsageError, match=r"notes\.txt: cannot be opened as an archive: file is not a database"):
        Archive.open(other)


def _open_at_once(
    path: Path, barrier: "multiprocessing.synchronize.Barrier", errors: "multiprocessing.Queue[str]"
) -> None:
    try:
        barrier.wait()
        Archive.open(path).close()
        errors.put("")
    except Exception as error:  # noqa: BLE001
        errors.put(repr(error))


def test_processes_that_open_a_new_archive_at_once_all_succeed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, errors = context.Barrier(3), context.Queue()
    workers = [
        context.Process(target=_open_at_once, args=(tmp_path / "new.db", barrier, errors), daemon=True)
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    assert [errors.get(timeout=60) for _ in workers] == ["", "", ""]


def _write(path: Path, name: str, count: int, acknowledged: Path) -> None:
    with Archive.open(path) as archive:
        archive.start_run(name, PROBLEM, "cpu", {})
        with acknowledged.open("a", buffering=1) as done:
            for number in range(count):
                made = dataclasses.replace(candidate(number), directive=f"{name} {number}", source=f"# {name} {number}")
                archive.add_proposals(name, number, [made])
                archive.add_result(name, result(made))
                done.write(f"{made.hash}\n")


def _spawn_writers(
    path: Path, folder: Path, count: int, writers: int
) -> list[tuple[str, Path, multiprocessing.Process]]:
    context = multiprocessing.get_context("spawn")
    found = []
    for number in range(writers):
        name, acknowledged = f"writer-{number}", folder / f"acknowledged-{number}"
        acknowledged.touch()
        process = context.Process(target=_write, args=(path, name, count, acknowledged), daemon=True)
        process.start()
        found.append((name, acknowledged, process))
    return found  # type: ignore[return-value]


def test_writers_and_readers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "archive.db"
    with Archive.open(path) as archive:
        archive.add_problem(PROBLEM, INFO)
        writers = _spawn_writers(path, tmp_path, count=60, writers=3)
        while any(process.is_alive() for _, _, process in writers):
            for info in archive.runs():
                archive.results_of(info.id, SEARCH)
        assert [process.exitcode for _, _, process in writers] == [0, 0, 0]
        for name, acknowledged, _ in writers:
            written = {r.candidate.hash for r in archive.results_of(name, SEARCH)}
            assert written == set(acknowledged.read_text().split())
            assert len(written) == 60


@pytest.mark.parametrize("times", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_every_acknowledged_row_and_nothing_half_written(tmp_path: Path, times: int) -> None:
    path = tmp_path / "archive.db"
    with Archive.open(path) as archive:
        archive.add_problem(PROBLEM, INFO)
    for attempt in range(times):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        ((name, acknowledged, process),) = _spawn_killable(path, folder, attempt)
        while process.is_alive() and len(acknowledged.read_text()) < 65 * (3 + attempt % 7):
            time.sleep(0.001)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with Archive.open(path) as archive:
            written = {r.candidate.hash for r in archive.results_of(name, SEARCH)}
            assert written >= {line for line in acknowledged.read_text().splitlines() if len(line) == 64}
        with sqlite3.connect(path) as plain:
            assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            orphans = "SELECT count(*) FROM verdicts v LEFT JOIN measurements m USING (run_id, candidate_hash, stage)"
            assert plain.execute(f"{orphans} WHERE v.status = 'correct' AND m.run_id IS NULL").fetchone() == (0,)


def _spawn_killable(path: Path, folder: Path, attempt: int) -> list[tuple[str, Path, multiprocessing.Process]]:
    context = multiprocessing.get_context("spawn")
    name, acknowledged = f"killed-{attempt}", folder / "acknowledged"
    acknowledged.touch()
    process = context.Process(target=_write, args=(path, name, 10_000, acknowledged), daemon=True)
    process.start()
    return [(name, acknowledged, process)]  # type: ignore[list-item]
