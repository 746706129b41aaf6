"""What the sandbox does with modules that misbehave, and that nothing of theirs is left afterwards."""

import os
import time
from pathlib import Path

import pytest
import torch

from kernelwright.stages.sandbox.pool import KEPT_VARIABLES, Runner, RunnerFailed, Zygote

LOAD = {
    "class_name": "ModelNew",
    "device": "cpu",
    "training": True,
    "threads": 2,
    "allow_tf32": False,
    "compile_mode": None,
    "environment": {},
}

HEADER = "import os, sys, time, ctypes, threading, torch\n"


def load(zygote: Zygote, tmp_path: Path, body: str, timeout_s: float = 20.0) -> Runner:
    """A runner with this forward: `body` is the text of `ModelNew.forward(self, x)`, one statement a line."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = f"{HEADER}class ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"
    return load_source(zygote, tmp_path, source, timeout_s)


def load_source(zygote: Zygote, tmp_path: Path, source: str, timeout_s: float = 20.0) -> Runner:
    import pickle

    path, init = tmp_path / "candidate.py", tmp_path / "init.pkl"
    path.write_text(source)
    init.write_bytes(pickle.dumps([]))
    runner = zygote.spawn()
    runner.ask("load", timeout_s, path=str(path), init=str(init), **LOAD)
    runner.ask("slot", timeout_s, slot=0, arguments={"list": [{"value": 3}]}, tensors=[])
    return runner


def outcome(zygote: Zygote, tmp_path: Path, body: str, timeout_s: float = 20.0) -> RunnerFailed:
    runner = load(zygote, tmp_path, body)
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
    zygote: Zygote, tmp_path: Path, body: str, kind: str, message: str
) -> None:
    failure = outcome(zygote, tmp_path, body)
    assert failure.kind == kind
    assert message in failure.message


def test_a_hang_is_killed_with_everything_that_it_forked(zygote: Zygote, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"child = os.fork()\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')\nwhile True: time.sleep(0.01)"
    failure = outcome(zygote, tmp_path, body, timeout_s=0.5)
    assert failure.kind == "hang"
    found = [int(p) for p in pids.read_text().split()]
    assert len(found) == 2
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(_runs(p) for p in found):
        time.sleep(0.01)
    assert not any(_runs(p) for p in found)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_syntax_error_names_its_line(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(RunnerFailed, match=r"candidate\.py:2: ") as failure:
        load_source(zygote, tmp_path, "import torch\ndef forward(:\n")
    assert failure.value.kind == "compile_error"


def test_a_file_without_the_class_says_so(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(RunnerFailed, match="no class ModelNew"):
        load_source(zygote, tmp_path, "import torch\n")


def test_the_sandbox_holds_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("SOME_TOKEN", "canary-too")
    own = Zygote()
    try:
        runner = load(own, tmp_path, "raise RuntimeError(repr(dict(os.environ)))")
        with pytest.raises(RunnerFailed) as failure:
            runner.ask("call", 20.0, slots=[0])
    finally:
        own.close()
    assert "canary" not in failure.value.message
    assert "HOME" in failure.value.message
    assert not [k for k in KEPT_VARIABLES if "KEY" in k or "TOKEN" in k]


def test_what_a_runner_prints_is_not_shown(zygote: Zygote, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runner = load(zygote, tmp_path, "print('speedup: 150x', flush=True); os.write(2, b'verdict: correct')\nreturn x")
    runner.ask("call", 20.0, slots=[0])
    runner.kill()
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_zygote_forks_from_one_thread_even_after_a_runner_used_many(zygote: Zygote, tmp_path: Path) -> None:
    # A CPU operation inside the zygote would start its thread pool, and children would hang at their first one.
    busy = load(zygote, tmp_path, "return torch.randn(512, 512) @ torch.randn(512, 512)")
    busy.ask("call", 20.0, slots=[0])
    again = load(zygote, tmp_path, "return torch.randn(512, 512) @ torch.randn(512, 512)")
    again.ask("call", 20.0, slots=[0])
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1  # noqa: PTH208
    busy.kill()
    again.kill()


def test_a_runner_has_a_home_of_its_own_that_is_gone_afterwards(zygote: Zygote, tmp_path: Path) -> None:
    runner = load(zygote, tmp_path, "open('left-behind', 'w').write('x'); return x")
    runner.ask("call", 20.0, slots=[0])
    assert (runner.home / "left-behind").exists()
    runner.kill()
    assert not runner.home.exists()


def test_parameters_are_matched_by_name_then_by_order_and_shape(zygote: Zygote, tmp_path: Path) -> None:
    source = (
        f"{HEADER}class ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.gain = torch.nn.Parameter(torch.ones(4))\n"
        "    def forward(self, x):\n        return self.gain\n"
    )
    runner = load_source(zygote, tmp_path, source)
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
