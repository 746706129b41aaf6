"""What the sandbox does with modules that misbehave, and that nothing of theirs is left afterwards."""

import os
import time
from pathlib import Path

import pytest
import torch

from kernelwright.stages.sandbox import census
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.keep import descendants
from kernelwright.stages.sandbox.pool import KEPT_VARIABLES, Runner, RunnerFailed, Zygote, alone

LOAD = {
    "class_name": "ModelNew",
    "device": "cpu",
    "training": True,
    "threads": 2,
    "allow_tf32": False,
    "inspect": False,
    "compile_mode": None,
    "environment": {},
}

HEADER = "import os, sys, time, ctypes, threading, torch\n"


def load(zygote: Zygote, body: str, timeout_s: float = 20.0, phase: Phase = Phase.RUN) -> Runner:
    """A runner with this forward: `body` is the text of `ModelNew.forward(self, x)`, one statement a line."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = f"{HEADER}class ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"
    return load_source(zygote, source, timeout_s, phase)


def load_source(zygote: Zygote, source: str, timeout_s: float = 20.0, phase: Phase = Phase.RUN) -> Runner:
    import pickle

    runner = zygote.spawn(phase)
    path, init = runner.home / "candidate.py", runner.home / "init.pkl"
    path.write_text(source)
    init.write_bytes(pickle.dumps([]))
    runner.ask("load", timeout_s, path=str(path), init=str(init), **LOAD)
    runner.ask("slot", timeout_s, slot=0, arguments={"list": [{"value": 3}]}, tensors=[])
    return runner


def outcome(zygote: Zygote, body: str, timeout_s: float = 20.0) -> RunnerFailed:
    runner = load(zygote, body)
    with pytest.raises(RunnerFailed) as failure:
        runner.ask("call", timeout_s, slots=[0])
    runner.kill()
    return failure.value


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("raise ValueError('no such tile')", "crash", "ValueError: no such tile"),
        ("ctypes.string_at(0)", "crash", "the process died by SIGSEGV"),
        ("os.abort()", "crash", "the process died by SIGABRT"),
        ("sys.exit(0)", "crash", "the process exited by itself (status 0)"),
        ("os._exit(7)", "crash", "the process exited by itself (status 7)"),
        ("raise torch.OutOfMemoryError('out of memory')", "oom", "out of memory"),
    ],
)
def test_what_a_forward_does_wrong_becomes_a_kind_and_a_message(
    zygote: Zygote, body: str, kind: str, message: str
) -> None:
    failure = outcome(zygote, body)
    assert failure.kind == kind
    assert message in failure.message


@pytest.mark.parametrize("detach", ["", "os.setsid()"])
def test_a_hang_is_killed_with_everything_that_it_forked(zygote: Zygote, detach: str) -> None:
    fork = f"if os.fork() == 0:\n    {detach or 'pass'}\n    os.fork()\nwhile True: time.sleep(0.01)"
    runner = load(zygote, fork, phase=Phase.BUILD)
    runner.post("call", slots=[0])
    deadline = time.monotonic() + 20
    while len(found := descendants(runner.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) == 2
    with pytest.raises(RunnerFailed) as failure:
        runner.answer(0.1)
    assert failure.value.kind == "hang"
    assert not [pid for pid in [runner.pid, *found] if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_syntax_error_names_its_line(zygote: Zygote) -> None:
    with pytest.raises(RunnerFailed, match=r"candidate\.py:2: ") as failure:
        load_source(zygote, "import torch\ndef forward(:\n")
    assert failure.value.kind == "compile_error"


def test_a_file_without_the_class_says_so(zygote: Zygote) -> None:
    with pytest.raises(RunnerFailed, match="no class ModelNew"):
        load_source(zygote, "import torch\n")


def test_the_sandbox_holds_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("SOME_TOKEN", "canary-too")
    own = Zygote()
    try:
        runner = load(own, "raise RuntimeError(repr(dict(os.environ)))")
        with pytest.raises(RunnerFailed) as failure:
            runner.ask("call", 20.0, slots=[0])
    finally:
        own.close()
    assert "canary" not in failure.value.message
    assert "HOME" in failure.value.message
    assert not [k for k in KEPT_VARIABLES if "KEY" in k or "TOKEN" in k]


def test_what_a_runner_prints_is_not_shown(zygote: Zygote, capfd: pytest.CaptureFixture[str]) -> None:
    runner = load(zygote, "print('speedup: 150x', flush=True); os.write(2, b'verdict: correct')\nreturn x")
    runner.ask("call", 20.0, slots=[0])
    runner.kill()
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_zygote_forks_from_one_thread_even_after_a_runner_used_many(zygote: Zygote) -> None:
    # A CPU operation inside the zygote would start its thread pool, and children would hang at their first one.
    busy = load(zygote, "return torch.randn(512, 512) @ torch.randn(512, 512)")
    busy.ask("call", 20.0, slots=[0])
    again = load(zygote, "return torch.randn(512, 512) @ torch.randn(512, 512)")
    again.ask("call", 20.0, slots=[0])
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1  # noqa: PTH208
    busy.kill()
    again.kill()


def test_a_runner_has_a_home_of_its_own_that_is_gone_afterwards(zygote: Zygote) -> None:
    runner = load(zygote, "open('left-behind', 'w').write('x'); return os.listdir('.')")
    runner.ask("call", 20.0, slots=[0])
    assert "left-behind" in str(runner.ask("describe", 20.0, back=1))
    runner.kill()
    assert not runner.home.exists()


def test_parameters_are_matched_by_name_then_by_order_and_shape(zygote: Zygote) -> None:
    source = (
        f"{HEADER}class ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.gain = torch.nn.Parameter(torch.ones(4))\n"
        "    def forward(self, x):\n        return self.gain\n"
    )
    runner = load_source(zygote, source)
    from kernelwright.stages.sandbox import memory

    given = torch.arange(4.0)
    places, nbytes = memory.layout([given], 0)
    segment = memory.allocate(nbytes, "cpu")
    places[0].view({0: segment}).copy_(given)
    assert segment.fd is not None
    runner.ask("attach", 20.0, (segment.fd,), segments=[[0, segment.handle]])
    place = [0, places[0].offset, [4], [1], "float32"]
    runner.ask("state", 20.0, state=[["weight", place]])
    with pytest.raises(RunnerFailed, match="missing: bias, weight; not in the reference: gain"):
        runner.ask("state", 20.0, state=[["weight", place], ["bias", place]])
    with pytest.raises(RunnerFailed, match=r"parameter gain has shape \(4,\), the reference's has \(2, 2\)"):
        runner.ask("state", 20.0, state=[["gain", [0, places[0].offset, [2, 2], [2, 1], "float32"]]])
    runner.kill()
    segment.close()


def test_a_paused_runner_stands_still_with_its_threads_and_goes_on_afterwards(zygote: Zygote) -> None:
    def spent(runner: Runner) -> float:
        return sum(census.take(runner.pid).threads.values())

    body = "def spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()\nreturn x"
    busy, other = load(zygote, body), load(zygote, "return x")
    busy.ask("call", 20.0, slots=[0])
    with alone(other, [busy, other]):
        time.sleep(0.05)
        before = spent(busy)
        time.sleep(0.3)
        assert spent(busy) == before
        assert other.ask("call", 20.0, slots=[0]) == {}
    assert busy.ask("call", 20.0, slots=[0]) == {}
    assert spent(busy) > before
    for runner in (busy, other):
        runner.kill()
