"""Given a problem and a candidate, the verdict is X because Y."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.bench import Bench
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Backend, Candidate, Compilation, Status

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return torch.tanh(self.norm(x))


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""
PROBLEM = Problem("normed", REFERENCE, "normed.py")
EFFORT = Effort(screen_rounds=0, rounds=5, region_ms=2.0, timeout_s=10.0)


@pytest.fixture(scope="module")
def bench(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    first = Job("first", PROBLEM, Candidate("", Backend.TORCH, "test"), "cpu", 11, EFFORT, baselines=("eager",))
    made = Bench(first, zygote, tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


def evaluate(bench: Bench, forward: str, setup: str = "") -> JobResult:
    lines = "".join(f"        {line}\n" for line in forward.splitlines())
    source = (
        f"{REFERENCE}\nimport ctypes, gc, os, sys, threading, time\n{setup}\n\n"
        f"class ModelNew(Model):\n    def forward(self, x):\n{lines}"
    )
    candidate = Candidate(source, Backend.TORCH, "test")
    job = Job("key", PROBLEM, candidate, "cpu", 11, EFFORT)
    return bench.evaluate(job, Compilation(True, Backend.TORCH, 0.0), lambda stage: None)


RIGHT = {
    "the reference itself": "return super().forward(x)",
    "another way to the same function": (
        "d = x - x.mean(-1, keepdim=True)\n"
        "y = d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5)\n"
        "return torch.tanh(y * self.norm.weight + self.norm.bias)"
    ),
}
WRONG = {
    "drops the affine parameters, whose defaults are one and zero": (
        "return torch.tanh(torch.nn.functional.layer_norm(x, (256,)))",
        "output 0",
    ),
    "computes in bfloat16": ("return super().forward(x.bfloat16().float())", "largest error"),
    "returns zeros": ("return torch.zeros_like(x)", "output 0"),
    "returns memory that was never written": ("return torch.empty_like(x)", "output 0"),
    "has another dtype": ("return super().forward(x).half()", "float16(64, 256) on cpu, the reference's is float32"),
    "has another shape": (
        "return super().forward(x)[:1]",
        "float32(1, 256) on cpu, the reference's is float32(64, 256)",
    ),
    "nests the output": ("return (super().forward(x),)", "nested otherwise"),
    "returns something else": ("return {1, 2}", "is a set, which can be neither passed nor returned"),
    "changes its input": ("y = super().forward(x)\nx.zero_()\nreturn y", "an input was changed"),
    "looks for the answer in memory": (
        "found = [o for o in gc.get_objects() if type(o) is torch.Tensor and o.shape == x.shape and o is not x]\n"
        "return found[-1].clone() if found else torch.zeros_like(x)",
        "output 0",
    ),
    "is right on the first call only": (
        "global calls\ncalls += 1\nreturn super().forward(x) if calls < 3 else torch.zeros_like(x)",
        "output 0",
    ),
    "is right until it has been called twenty times": (
        "global calls\ncalls += 1\nreturn super().forward(x) if calls < 20 else torch.zeros_like(x)",
        "output 0",
    ),
    "is wrong every seventh time": (
        "global calls\ncalls += 1\ny = super().forward(x)\nif calls % 7 == 0: y[-1, -1] = 0.0\nreturn y",
        "output 0",
    ),
    "returns the same buffer each time": (
        "y = cache.setdefault('y', torch.empty_like(x))\nreturn y.copy_(super().forward(x))",
        "held over the next call",
    ),
    "changes a parameter": (
        "y = super().forward(x)\nself.norm.bias.data.add_(1.0)\nreturn y",
        "norm.bias changed",
    ),
    "writes beyond its input": (
        "if x.is_contiguous(): ctypes.memset(x.data_ptr() + x.numel() * 4, 7, 16)\nreturn super().forward(x)",
        "bytes were written outside of every tensor",
    ),
    "returns a tensor that computes when it is looked at": (
        "return super().forward(x).as_subclass(Lazy)",
        "is a Lazy, a subclass of torch.Tensor",
    ),
    "fills its output after it has returned": (
        "y = torch.empty_like(x)\ndef late(): time.sleep(0.05); y.copy_(torch.tanh(self.norm(x)))\n"
        "threading.Thread(target=late, daemon=True).start()\nreturn y",
        "output 0",
    ),
    "replays the first answer for the same address": (
        "return cache.setdefault(x.data_ptr(), None) if x.data_ptr() in cache and cache[x.data_ptr()] is not None "
        "else cache.__setitem__(x.data_ptr(), super().forward(x)) or cache[x.data_ptr()]",
        "output 0",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_honest_candidates_are_correct_and_timed(bench: Bench, name: str) -> None:
    result = evaluate(bench, RIGHT[name])
    assert result.verdict.status is Status.CORRECT, result.verdict.message
    assert result.measurement is not None
    assert len(result.measurement.candidate.samples_ms) == EFFORT.rounds
    assert result.measurement.speedups["eager"].low <= result.measurement.speedups["eager"].high
    assert all(check.passed for check in result.verdict.checks)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_candidates_are_incorrect_with_a_reason(bench: Bench, name: str) -> None:
    forward, reason = WRONG[name]
    result = evaluate(bench, forward, setup="calls = 0\ncache = {}\nclass Lazy(torch.Tensor): pass\n")
    assert result.verdict.status is Status.INCORRECT
    assert reason in result.verdict.message
    assert result.measurement is None


@pytest.mark.parametrize(
    ("forward", "setup", "status"),
    [
        ("raise RuntimeError('no')", "", Status.CRASH),
        ("sys.exit(0)", "", Status.CRASH),
        ("while True: time.sleep(0.1)", "", Status.HANG),
        ("return x", "raise ImportError('nothing here')", Status.COMPILE_ERROR),
    ],
)
def test_a_candidate_that_fails_does_not_harm_the_next(bench: Bench, forward: str, setup: str, status: Status) -> None:
    result = evaluate(bench, forward, setup)
    assert result.verdict.status is status
    assert evaluate(bench, RIGHT["the reference itself"]).verdict.status is Status.CORRECT


def test_a_failed_compilation_is_the_verdict(bench: Bench) -> None:
    candidate = Candidate("x", Backend.CPP, "test")
    job = Job("key", PROBLEM, candidate, "cpu", 11, EFFORT)
    result = bench.evaluate(job, Compilation(False, Backend.CPP, 0.4, log="line 3: expected ';'"), lambda stage: None)
    assert (result.verdict.status, result.verdict.message) == (Status.COMPILE_ERROR, "line 3: expected ';'")


def test_a_slow_candidate_is_dropped_after_the_screen(bench: Bench) -> None:
    candidate = Candidate(f"{REFERENCE}\n\nclass ModelNew(Model):\n    pass\n", Backend.TORCH, "test")
    effort = replace(EFFORT, screen_rounds=1)
    job = Job("key", PROBLEM, candidate, "cpu", 11, effort, incumbent_ms_over_eager=1e-9)
    result = bench.evaluate(job, Compilation(True, Backend.TORCH, 0.0), lambda stage: None)
    assert result.measurement is not None
    assert result.measurement.screened_out
    assert len(result.measurement.candidate.samples_ms) < EFFORT.rounds


def test_a_gain_is_seen_again_in_fresh_processes_and_anything_else_is_not(zygote: Zygote, tmp_path: Path) -> None:
    # A sleep that outlasts whatever else the machine is busy with.
    slow, quick = (
        f"import time\n{REFERENCE}".replace("        return torch", f"        time.sleep({s})\n        return torch")
        for s in (0.3, 0.005)
    )
    assert slow != REFERENCE
    problem = Problem("slow", slow, "slow.py")
    effort = replace(EFFORT, pairs=2)
    same, faster = (
        Candidate(of.replace("class Model(", "class ModelNew("), Backend.TORCH, "test") for of in (slow, quick)
    )
    jobs = [Job(name, problem, c, "cpu", 11, effort, baselines=("eager",)) for name, c in (("a", same), ("b", faster))]
    own = Bench(jobs[0], zygote, tmp_path)
    try:
        copy, gain = (own.evaluate(j, Compilation(True, Backend.TORCH, 0.0), lambda stage: None) for j in jobs)
    finally:
        own.close()
    assert copy.measurement is not None
    assert gain.measurement is not None
    assert len(copy.measurement.candidate.samples_ms) == effort.rounds
    assert len(gain.measurement.candidate.samples_ms) == 2 * effort.rounds
    assert len(gain.measurement.baselines["eager"].samples_ms) == 2 * effort.rounds
    assert is_gain(gain.measurement.speedups["eager"])
    assert "fresh processes" in gain.measurement.method
