"""Candidates and results for the tests of what is shown."""

from kernelwright.agent.ui.view import RunView
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import JobResult
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

PROBLEM = Problem("softmax <odd> & name", "class Model: pass  # <reference>\n", "softmax.py")
CPU = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)


def empty() -> RunView:
    return RunView("softmax-1", PROBLEM, "cpu", max_candidates=24, time_s=100.0)


def candidate(number: int) -> Candidate:
    return Candidate(
        f"# candidate {number} <source>\n", Backend.CPP, "builtin", f"cpp.fused lanes={number}", template="cpp.fused"
    )


def right(of: Candidate, ratio: Ratio, key: str = "k", screened: bool = False) -> JobResult:
    eager = Timing((8.0,) * 5, 8.0, 3)
    mine = Timing((8.0 / ratio.median,) * 5, 8.0 / ratio.median, 9)
    against_compile = Ratio(ratio.median / 2, ratio.low / 2, ratio.high / 2)
    measurement = Measurement(
        mine,
        {"eager": eager, "compile": Timing((4.0,) * 5, 4.0, 5)},
        {"eager": ratio, "compile": against_compile},
        "the referee's clock",
        screened,
    )
    checks = (Check("case 0, output 0: largest error", True, 1e-7, 1e-6, "eager's own 1e-7"),)
    compilation = Compilation(True, Backend.CPP, 0.4, resources=(KernelResources("fused_softmax", "x86-64"),))
    return JobResult(key, of.hash, Verdict(Status.CORRECT, "", checks), CPU, compilation, measurement)


def wrong(of: Candidate, status: Status, message: str, key: str = "k") -> JobResult:
    return JobResult(key, of.hash, Verdict(status, message), CPU)
