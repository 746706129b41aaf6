"""Who works on after the answer is found, and thread pools that merely wait are not."""

import pytest

from kernelwright.stages.sandbox import census
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import forward, load

SPIN = """
def spin():
    end = time.time() + 20
    while time.time() < end:
        a = torch.randn(200, 200) @ torch.randn(200, 200)
"""


def after_call(zygote: Zygote, source: str, phase: Phase = Phase.RUN, calls: int = 1) -> list[str]:
    runner = zygote.spawn(phase)
    try:
        load(runner, source)
        for _ in range(calls):
            runner.ask("call", 60.0, slots=[0])
            found = census.still_working(runner.pid)
            if found:
                break
        return found
    finally:
        runner.kill()


@pytest.mark.parametrize(
    "start",
    [
        "threading.Thread(target=spin, daemon=True).start()",
        "import _thread; _thread.start_new_thread(spin, ())",
        "[threading.Thread(target=spin, daemon=True).start() for _ in range(3)]",
    ],
)
def test_a_thread_that_works_on_is_found(zygote: Zygote, start: str) -> None:
    (told,) = after_call(zygote, forward(start, top=SPIN))
    assert "went on for" in told
    assert "after the call returned" in told


def test_a_child_that_works_on_is_found(zygote: Zygote) -> None:
    body = "if os.fork() == 0:\n    while True: pass\nreturn x"
    assert after_call(zygote, forward(body), Phase.BUILD) == ["1 child process went on working after the call returned"]


@pytest.mark.parametrize(
    "body",
    [
        "return (torch.randn(700, 700) @ torch.randn(700, 700)).sum().item()",
        "return float(torch.exp(torch.randn(2000, 2000)).sum())",
        "threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\nreturn x",
        "import concurrent.futures as c\ne = c.ThreadPoolExecutor(2)\nreturn sum(e.map(abs, range(99)))",
        "torch.set_num_threads(4)\nreturn float(torch.exp(torch.randn(2000, 2000)).sum())",
        "y = torch.randn(300, 300, requires_grad=True)\nwith torch.enable_grad():\n    (y * y).sum().backward()",
    ],
)
def test_pools_that_wait_for_more_work_and_idle_threads_are_not(zygote: Zygote, body: str) -> None:
    assert after_call(zygote, forward(body), calls=10) == []


def test_a_census_counts_threads_and_living_children(zygote: Zygote) -> None:
    runner = zygote.spawn(Phase.BUILD)
    load(runner, forward("if os.fork() == 0: time.sleep(60)\nif os.fork() == 0: os._exit(0)\nreturn x"))
    runner.ask("call", 60.0, slots=[0])
    seen = census.take(runner.pid)
    while len(seen.processes) > 1:
        seen = census.take(runner.pid)
    assert len(seen.processes) == 1
    assert (runner.pid, runner.pid) in seen.threads
    runner.kill()
