"""Three hundred broken candidates, one after the other: each gets the right verdict, and the pool stays healthy."""

import os
import random
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import Effort, Job
from kernelwright.stages.execute.worker import Worker
from kernelwright.stages.types import Backend, Candidate, Status

pytestmark = pytest.mark.slow

REFERENCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.tanh(x * self.weight)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
"""
PROBLEM = Problem("scaled", REFERENCE, "scaled.py")
EFFORT = Effort(thorough=False, rounds=2, region_ms=1.0, timeout_s=3.0)
RIGHT = "return torch.tanh(x * self.weight)"

# (forward, what stands at module level, what stands in the constructor)
BROKEN: dict[str, tuple[str, str, str, Status]] = {
    "syntax error": (RIGHT, "def broken(:", "", Status.COMPILE_ERROR),
    "raises at import": (RIGHT, "raise ValueError({n})", "", Status.COMPILE_ERROR),
    "lacks an import": (RIGHT, "import no_such_module_{n}", "", Status.COMPILE_ERROR),
    "raises in the constructor": (RIGHT, "", "raise KeyError({n})", Status.CRASH),
    "raises in forward": ("raise RuntimeError('tile {n}')", "", "", Status.CRASH),
    "wrong shape": (f"{RIGHT}[:{{n}} % 31 + 1]", "", "", Status.INCORRECT),
    "wrong dtype": (f"{RIGHT}.double()", "", "", Status.INCORRECT),
    "wrong device": (f"{RIGHT}.to('meta')", "", "", Status.INCORRECT),
    "no output": ("pass", "", "", Status.INCORRECT),
    "wrong values": (f"{RIGHT} * (1 + 1e-3 * {{n}})", "", "", Status.INCORRECT),
    "nan": (f"{RIGHT} * float('nan')", "", "", Status.INCORRECT),
    "stores out of bounds": ("ctypes.memset(x.data_ptr() + (1 << 40), 7, 4096)\n" + RIGHT, "", "", Status.CRASH),
    "stores beyond its input": ("ctypes.memset(x.data_ptr() + 32 * 64 * 4, 7, 8)\n" + RIGHT, "", "", Status.INCORRECT),
    "never ends": ("while True: pass", "", "", Status.HANG),
    "never ends at import": (RIGHT, "import time\nwhile True: time.sleep(0.01)", "", Status.HANG),
    "asks for more memory than there is": ("return torch.empty(1 << 52)", "", "", Status.OOM),
    "fills the memory": ("keep = []\nwhile True: keep.append(torch.ones(1 << 26))", "", "", Status.OOM),
    "segmentation fault": ("ctypes.string_at({n})", "", "", Status.CRASH),
    "abort": ("os.abort()", "", "", Status.CRASH),
    "sys.exit": ("sys.exit(0)", "", "", Status.CRASH),
    "sys.exit at import": (RIGHT, "sys.exit(0)", "", Status.CRASH),
    "os._exit": ("os._exit(0)", "", "", Status.CRASH),
    "recursion": ("return self.forward(x)", "", "", Status.CRASH),
    "prints a gigabyte": (
        "for _ in range(1024): os.write(1, bytes(1 << 20))\nreturn x * {n}",
        "",
        "",
        Status.INCORRECT,
    ),
}


def candidate(forward: str, module: str = "", constructor: str = "") -> Candidate:
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    init = "".join(f"        {line}\n" for line in ["super().__init__(width)", *constructor.splitlines()])
    source = (
        f"{REFERENCE}\nimport ctypes, os, sys\n{module}\n\n\nclass ModelNew(Model):\n"
        f"    def __init__(self, width):\n{init}\n    def forward(self, x):\n{body}"
    )
    return Candidate(source, Backend.TORCH, "test")


def test_three_hundred_broken_candidates(tmp_path: Path) -> None:
    source = random.Random(5)
    names = [*BROKEN, *source.choices([*BROKEN], k=300 - len(BROKEN))]
    worker = Worker(tmp_path)
    own = psutil.Process()
    resident: list[int] = []
    wrong: list[str] = []
    try:
        for number, name in enumerate(names):
            texts = [text.replace("{n}", str(number + 2)) for text in BROKEN[name][:3]]
            # Only what never ends need not be waited for.
            effort = EFFORT if BROKEN[name][3] is Status.HANG else replace(EFFORT, timeout_s=60.0)
            job = Job(str(number), PROBLEM, candidate(*texts), "cpu", 1, effort, baselines=("eager",))
            (result,) = worker.run([job], lambda progress: None)
            if result.verdict.status is not BROKEN[name][3]:
                wrong.append(f"{name}: {result.verdict.status}, {result.verdict.message[:200]}")
            resident.append(own.memory_info().rss)
        (good,) = worker.run(
            [Job("good", PROBLEM, candidate(RIGHT), "cpu", 1, EFFORT, baselines=("eager",))], lambda progress: None
        )
        assert worker.bench is not None
        known: set[int | None] = {worker.zygote.process.pid}
        for runner in worker.bench.baselines.runners.values():
            known |= {runner.process.pid, runner.process.keeper, runner.process.first}
        left = [p for p in own.children(recursive=True) if p.pid not in known]
    finally:
        worker.close()
    assert not wrong, "\n".join(wrong)
    assert good.verdict.status is Status.CORRECT, good.verdict.message
    assert not left
    assert resident[-1] - resident[len(resident) // 3] < 64 * 2**20
    assert len(os.listdir("/proc/self/fd")) < 200  # noqa: PTH208
