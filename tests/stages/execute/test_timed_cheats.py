"""Candidates that are right wherever they are verified, and try to be spared the work when they are timed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.bench import Bench
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Backend, Candidate, Compilation, Status

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        for _ in range(6):
            x = torch.tanh(x @ self.weight)
        return x


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
PROBLEM = Problem("repeated", REFERENCE, "repeated.py")
EFFORT = Effort(screen_rounds=0, rounds=6, region_ms=8.0, timeout_s=10.0)
CALLS_IN_VERIFICATION = 60


@pytest.fixture(scope="module")
def bench(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    first = Job("first", PROBLEM, Candidate("", Backend.TORCH, "test"), "cpu", 11, EFFORT, baselines=("eager",))
    made = Bench(first, zygote, tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


def evaluate(bench: Bench, source: str) -> JobResult:
    candidate = Candidate(f"{REFERENCE}\nVERIFIED = {CALLS_IN_VERIFICATION}\n{source}", Backend.TORCH, "test")
    job = Job("key", PROBLEM, candidate, "cpu", 11, EFFORT)
    return bench.evaluate(job, Compilation(True, Backend.TORCH, 0.0), lambda stage: None)


CHEATS = {
    "keeps answers by address, until its last output is let go": """
import weakref
known, anchor = {}, lambda: None
class ModelNew(Model):
    def forward(self, x):
        global anchor
        if anchor() is None:
            known.clear()
        key = x.data_ptr()
        if key not in known:
            known[key] = super().forward(x)
        y = known[key].clone()
        anchor = weakref.ref(y)
        return y
""",
    "keeps answers by address and a sample of the values": """
known = {}
class ModelNew(Model):
    def forward(self, x):
        key = x.data_ptr(), *x.reshape(-1)[::67].tolist(), float(self.weight[0, 0])
        if x.stride() != (128, 1) or key not in known:
            known[key] = super().forward(x)
        return known[key].clone()
""",
    "keeps answers by values up to a common factor": """
kept = []
class ModelNew(Model):
    def forward(self, x):
        for old, weight, answer in kept:
            factor = x[0, 0] / old[0, 0]
            if x.shape == old.shape and weight == float(self.weight[0, 0]) and torch.allclose(old * factor, x, 1e-2):
                return answer * factor
        kept.append((x.clone(), float(self.weight[0, 0]), super().forward(x)))
        del kept[:-4]
        return kept[-1][2].clone()
""",
    "works out all answers when the last output of a region is let go": """
import gc, time
calls, known, latest = 0, {}, 0.0
class Last:
    def __init__(self, module):
        self.module = module
    def __del__(self):
        if time.perf_counter() - latest < 0.001:
            return  # A region is under way.
        for runner in (o for o in gc.get_objects() if type(o).__name__ == "Runner"):
            for (x,) in runner.slots.values():
                known[x.data_ptr()] = Model.forward(self.module, x)
class ModelNew(Model):
    def forward(self, x):
        global calls, latest
        calls += 1
        latest = time.perf_counter()
        if calls < VERIFIED or x.data_ptr() not in known:
            y = super().forward(x)
        else:
            y = known[x.data_ptr()].clone()
        if calls > VERIFIED - 5:
            y.last = Last(self)
        return y
""",
    "works out an output when it is described": """
import sys
calls, owed = 0, []
def pay(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "do_describe":
        for module, x, y in owed[-2:]:
            y.copy_(Model.forward(module, x))
        owed.clear()
class ModelNew(Model):
    def forward(self, x):
        global calls
        calls += 1
        if calls < VERIFIED:
            return super().forward(x)
        sys.setprofile(pay)
        owed.append((self, x, torch.empty_like(x)))
        return owed[-1][2]
""",
    "works out an output when it is copied": """
import ctypes
calls, owed = 0, {}
library = torch.library.Library("aten", "IMPL")
def copy(keys, target, source, non_blocking=False):
    if source.data_ptr() in owed:
        module, x = owed.pop(source.data_ptr())
        answer = Model.forward(module, x)
        ctypes.memmove(source.data_ptr(), answer.data_ptr(), 4 * answer.numel())
    ctypes.memmove(target.data_ptr(), source.data_ptr(), 4 * source.numel())
    return target
class ModelNew(Model):
    def forward(self, x):
        global calls
        calls += 1
        if calls < VERIFIED:
            return super().forward(x)
        if calls == VERIFIED:
            library.impl("copy_", copy, "CPU", with_keyset=True)
        y = torch.empty_like(x)
        owed[y.data_ptr()] = self, x
        return y
""",
    "puts another call in the place of its own": """
import gc
calls = 0
class ModelNew(Model):
    def forward(self, x):
        global calls
        calls += 1
        if calls == VERIFIED:
            (runner,) = [o for o in gc.get_objects() if type(o).__name__ == "Runner"]
            runner.call = lambda x: Model.forward(self, x)
        return super().forward(x)
""",
    "flushes denormals, which the reference does not": """
class ModelNew(Model):
    def __init__(self, width):
        super().__init__(width)
        torch.set_flush_denormal(True)
""",
    "changes a global switch only when it is timed": """
calls = 0
class ModelNew(Model):
    def forward(self, x):
        global calls
        calls += 1
        if calls == VERIFIED:
            torch.set_flush_denormal(True)
        return super().forward(x)
""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_candidate_that_cheats_when_timed_gets_no_time(bench: Bench, name: str) -> None:
    result = evaluate(bench, CHEATS[name])
    assert result.verdict.status in (Status.INCORRECT, Status.TAMPERED), result.verdict.message
    assert result.measurement is None


def test_the_module_itself_is_right_and_timed(bench: Bench) -> None:
    result = evaluate(bench, "class ModelNew(Model):\n    pass\n")
    assert result.verdict.status is Status.CORRECT, result.verdict.message
    assert result.measurement is not None


def test_a_candidate_that_keeps_answers_by_all_values_has_nothing_from_it(bench: Bench) -> None:
    """Right, for no value comes twice: so it may be timed, and is slower by what it keeps."""
    source = """
known = {}
class ModelNew(Model):
    def forward(self, x):
        key = bytes(x.contiguous().numpy()), bytes(self.weight.detach().numpy())
        self.hits = getattr(self, "hits", 0) + (key in known)
        if key not in known:
            known[key] = super().forward(x)
        return known[key].clone()
"""
    result = evaluate(bench, source)
    assert result.verdict.status is Status.CORRECT, result.verdict.message
    assert result.measurement is not None
    assert result.measurement.speedups["eager"].low < 1.02


SHARING = {
    "two outputs in one memory": "y = super().forward(x)[0]; return y, y",
    "one row that stands for all": "y = super().forward(x)[0]; return y, y[:1].expand(4, 8)",
}
PAIR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(0, keepdim=True).repeat(4, 1), x.mean(0, keepdim=True).repeat(4, 1)


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("name", SHARING)
def test_an_output_has_memory_of_its_own_where_the_references_has(zygote: Zygote, tmp_path: Path, name: str) -> None:
    problem = Problem("pair", PAIR, "pair.py")
    source = f"{PAIR}\nclass ModelNew(Model):\n    def forward(self, x):\n        {SHARING[name]}\n"
    job = Job("key", problem, Candidate(source, Backend.TORCH, "test"), "cpu", 11, EFFORT, baselines=("eager",))
    bench = Bench(job, zygote, tmp_path)
    try:
        result = bench.evaluate(job, Compilation(True, Backend.TORCH, 0.0), lambda stage: None)
    finally:
        bench.close()
    assert result.verdict.status is Status.INCORRECT
    assert "has no memory of its own" in result.verdict.message
