"""Calls that share one worker, with the real worker."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from kernelwright.agent.referee import Referee
from kernelwright.agent.verification import Watch, judged
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.execute.job import Executor, JobResult
from kernelwright.stages.types import Status
from tests.stages.execute.softmax_jobs import job

TIMEOUT_S = 120.0
"""A guard against waiting for ever."""


@pytest.fixture
def referee(tmp_path: Path) -> Iterator[Referee]:
    made = Referee(tmp_path)
    yield made
    made.close()


def workers() -> list[int]:
    children = psutil.Process().children()
    return [p.pid for p in children if p.status() != psutil.STATUS_ZOMBIE and "--serve" in p.cmdline()]


def wrong(executor: Executor, watch: Watch) -> JobResult:
    return judged(executor, job("wrong"), watch)


def unusable(executor: Executor, watch: Watch) -> JobResult:
    raise UsageError("the problem cannot be used")


def broken(executor: Executor, watch: Watch) -> JobResult:
    (worker,) = workers()
    psutil.Process(worker).kill()
    return wrong(executor, watch)


def test_the_worker_stays_until_it_fails(referee: Referee) -> None:
    first = referee.call(wrong)
    assert first.future.result(TIMEOUT_S).verdict.status is Status.INCORRECT
    assert first.stage == "verifying"
    (kept,) = workers()
    with pytest.raises(UsageError, match="cannot be used"):
        referee.call(unusable).future.result(TIMEOUT_S)
    assert workers() == [kept]
    with pytest.raises(EnvironmentFault, match="the worker ended unexpectedly") as fault:
        referee.call(broken).future.result(TIMEOUT_S)
    assert "worker.log" not in str(fault.value)
    assert referee.call(wrong).future.result(TIMEOUT_S).verdict.status is Status.INCORRECT
    assert workers() not in ([], [kept])
    referee.close()
    assert workers() == []


def test_calls_have_their_turn_in_order_and_one_that_is_withdrawn_has_none(referee: Referee) -> None:
    go, order = threading.Event(), []

    def waiting(executor: Executor, watch: Watch) -> None:
        go.wait(TIMEOUT_S)
        order.append("first")

    calls = [referee.call(waiting), *(referee.call(lambda e, w, n=n: order.append(n)) for n in ("second", "third"))]
    assert calls[1].stage == "waiting for its turn"
    referee.withdraw(calls[1])
    go.set()
    calls[2].future.result(TIMEOUT_S)
    assert order == ["first", "third"]
    with pytest.raises(CancelledError):
        calls[1].future.result(TIMEOUT_S)


def test_a_worker_that_nobody_calls_ends_and_comes_again(tmp_path: Path) -> None:
    referee = Referee(tmp_path, idle_s=0.1)
    try:
        for _ in range(2):
            assert referee.call(wrong).future.result(TIMEOUT_S).verdict.status is Status.INCORRECT
            until = time.monotonic() + TIMEOUT_S
            while workers():
                assert time.monotonic() < until
                time.sleep(0.05)
    finally:
        referee.close()
