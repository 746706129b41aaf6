"""The executor of this machine, with its real worker: results come whole, and nothing is left running."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.execute.job import Progress
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.types import Backend, Candidate, Status
from tests.stages.execute.softmax_jobs import job

GONE_WITHIN_S = 30.0
"""A guard against waiting for ever: a process is gone some milliseconds after its owner."""


class Interrupted(Exception):
    """Stands for Ctrl-C."""


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(cache=tmp_path / "cache", log=tmp_path / "worker.log")
    yield made
    made.close()


def ignore(progress: Progress) -> None:
    pass


def tree() -> list[psutil.Process]:
    """The worker, and what it started: the zygote, the baselines, the candidate."""
    alive = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    (worker,) = [p for p in alive if "kernelwright.stages.execute.worker" in p.cmdline()]
    return [worker, *worker.children(recursive=True)]


def busy_tree() -> list[psutil.Process]:
    """The same once the candidate has its process: worker, zygote, one baseline, one candidate."""
    while len(found := tree()) < 4:
        time.sleep(0.01)
    return found


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=GONE_WITHIN_S)
    assert [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_each_job_has_one_result_and_closing_leaves_nothing(executor: LocalExecutor) -> None:
    seen: list[Progress] = []
    right, wrong = executor.run([job("right"), job("wrong")], seen.append)
    assert (right.key, right.verdict.status) == ("run/0/right", Status.CORRECT)
    assert right.measurement is not None
    assert set(right.measurement.baselines) == {"eager"}
    assert (wrong.key, wrong.verdict.status) == ("run/0/wrong", Status.INCORRECT)
    assert wrong.measurement is None
    stages = [progress.stage for progress in seen if progress.key == right.key]
    assert stages == ["compile", "prepare", "verify", "baselines", "measure"]

    first = tree()
    assert list(executor.run([], ignore)) == []
    (again,) = executor.run([job("other")], ignore)
    assert again.verdict.status is Status.CORRECT
    assert tree() == first, "worker, zygote and baseline stay between batches"
    executor.close()
    assert_gone(first)
    executor.close()


def test_a_worker_that_is_killed_is_a_fault_that_names_the_log(executor: LocalExecutor, tmp_path: Path) -> None:
    killed: list[psutil.Process] = []

    def kill() -> None:
        killed.extend(busy_tree())
        killed[0].kill()

    def watch(progress: Progress) -> None:
        if progress.stage == "verify":
            threading.Thread(target=kill).start()

    with pytest.raises(EnvironmentFault, match=r"the worker ended unexpectedly \(status -9\): see .*worker\.log"):
        list(executor.run([job("endless")], watch))
    assert_gone(killed)
    with pytest.raises(EnvironmentFault, match=r"the worker ended unexpectedly \(status -9\): see .*worker\.log"):
        list(executor.run([job("right")], ignore))
    executor.close()


def test_closing_in_the_middle_of_a_job_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    executor = LocalExecutor(cache=tmp_path / "cache", log=tmp_path / "worker.log")
    busy: list[psutil.Process] = []

    def interrupt(progress: Progress) -> None:
        if progress.stage == "verify":
            busy.extend(busy_tree())
            raise Interrupted

    with pytest.raises(Interrupted):
        list(executor.run([job("endless")], interrupt))
    executor.close()
    assert_gone(busy)
    assert list(temporary.iterdir()) == []


def test_a_killed_worker_leaves_no_compiler_behind(executor: LocalExecutor, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    endless = dataclasses.replace(job("right"), candidate=Candidate(source, Backend.TRITON, "test"))
    killed: list[psutil.Process] = []
    commands: list[str] = []

    def kill() -> None:
        while not begun.exists():
            time.sleep(0.01)
        killed.extend(tree())
        commands.extend(" ".join(process.cmdline()) for process in killed)
        killed[0].kill()

    def watch(progress: Progress) -> None:
        threading.Thread(target=kill).start()

    with pytest.raises(EnvironmentFault, match="the worker ended unexpectedly"):
        list(executor.run([endless], watch))
    assert any("kernelwright.stages.compile.triton_child" in line for line in commands)
    assert_gone(killed)
