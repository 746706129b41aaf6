"""Verified candidates a minute, ours beside KernelBench's own evaluator: same GPU, same problem, same candidates.

    python benchmarks/throughput.py run --kernelbench CHECKOUT --log throughput.json
    python benchmarks/throughput.py report throughput.json               writes docs/results/referee.json

KernelBench's side is what its batch script does: for each candidate a new process, `eval_kernel_against_ref` with 5
correctness trials, then timing of candidate and reference. Our side is a worker's `run`, from its start to the last
result, baselines and build included. Both sides make as many timed calls: ours times whole regions, so KernelBench is
given our number; its own default of 100 is measured too (`...ratio_default_calls`).

`cuda` is one CUDA kernel, given to each side in the way that it takes: as CUDA_SOURCE for our CUDA back end, through
torch's load_inline for KernelBench, which has no other. `cuda_inline` is the very same load_inline file on both sides:
most of its time is the compiler reading torch's headers, which no evaluator can spare it.

The checkout's package imports pydantic and what NOT_CALLED names, for its model clients and downloads. The latter are
not called when evaluating: where they are not installed, empty modules stand in, which makes its import shorter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results import row, write
from throughput_candidates import RELU, SMALL, Operation, candidate, problem

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.types import Candidate, Environment, Status

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "results" / "referee.json"
ROWS, COLUMNS = 1024, 16384
SMALL_ROWS, SMALL_COLUMNS = 256, 1024
CORRECTNESS_TRIALS = 5
DEFAULT_CALLS = 100
CHILD_TIMEOUT_S = 400.0
NOT_CALLED = {
    "dotenv": "load_dotenv",
    "openai": "OpenAI",
    "litellm": "completion",
    "requests": "get",
    "tqdm": "tqdm",
}
"""What the checkout imports and does not call when evaluating, by module."""


@dataclass(frozen=True)
class Ours:
    """What our side took for some candidates."""

    kind: str
    seconds: float
    """From the worker's start to the last result."""
    correct: int
    statuses: dict[str, int]
    timed_calls: int
    """Of one candidate in all its rounds; eager's are about as many."""
    stages: dict[str, float] = field(default_factory=dict)
    """Median seconds of one candidate by stage, waits for the device left out of `measure` only."""

    @property
    def seconds_each(self) -> float:
        """Seconds a verified candidate."""
        return self.seconds / self.correct if self.correct else float("inf")


@dataclass(frozen=True)
class Theirs:
    """What KernelBench's side took for some candidates, each in a process of its own."""

    kind: str
    timed_calls: int
    seconds: tuple[float, ...]
    """Of those that it found correct."""
    failures: tuple[str, ...]

    @property
    def seconds_each(self) -> float:
        """Seconds a verified candidate."""
        return statistics.mean(self.seconds) if self.seconds else float("inf")


@dataclass(frozen=True)
class Log:
    """Everything that was measured."""

    environment: Environment
    ours: tuple[Ours, ...]
    theirs: tuple[Theirs, ...]


def measure_ours(kind: str, pairs: Sequence[tuple[Problem, Candidate]], device: str, effort: Effort) -> Ours:
    """Evaluate candidates with a new worker and empty caches."""
    from kernelwright.stages.execute.worker import Worker

    jobs = [
        Job(f"{kind}/{i}", of, each, device, seed=1, effort=effort, baselines=("eager",))
        for i, (of, each) in enumerate(pairs)
    ]
    with tempfile.TemporaryDirectory(prefix="kernelwright-throughput-") as cache:
        start = time.monotonic()
        worker = Worker(Path(cache))
        try:
            results = list(worker.run(jobs, lambda progress: None))
            took_s = time.monotonic() - start
        finally:
            worker.close()
    for result in results:
        if result.verdict.status is not Status.CORRECT:
            print(f"  ours {result.key}: {result.verdict.status}: {result.verdict.message[:300]}", flush=True)
    return _ours(kind, took_s, results)


def _ours(kind: str, took_s: float, results: Sequence[JobResult]) -> Ours:
    statuses: dict[str, int] = {}
    calls = []
    for result in results:
        statuses[result.verdict.status] = statuses.get(result.verdict.status, 0) + 1
        if result.measurement is not None:
            timing = result.measurement.candidate
            calls.append(timing.calls_per_region * len(timing.samples_ms))
    timed_calls = int(statistics.median(calls)) if calls else 0
    return Ours(kind, took_s, statuses.get(Status.CORRECT, 0), statuses, timed_calls, _stages(results))


def _stages(results: Sequence[JobResult]) -> dict[str, float]:
    names = {name for result in results for name in result.seconds}
    return {name: statistics.median(r.seconds.get(name, 0.0) for r in results) for name in sorted(names)}


def measure_theirs(checkout: Path, kind: str, of: Problem, each: Sequence[Candidate], calls: int) -> Iterator[Theirs]:
    """Evaluate candidates with KernelBench's evaluator, one process after the other; what there is after each."""
    seconds: list[float] = []
    failures: list[str] = []
    for number, one in enumerate(each):
        with tempfile.TemporaryDirectory(prefix="kernelbench-") as name:
            folder = Path(name)
            request = {
                "checkout": str(checkout.resolve()),
                "reference": of.source,
                "candidate": one.source,
                "backend": "triton" if kind == "triton" else "cuda",
                "calls": calls,
                "build": str(folder / "build"),
                "answer": str(folder / "answer.json"),
            }
            (folder / "request.json").write_text(json.dumps(request))
            start = time.monotonic()
            said = _child(folder)
            took_s = time.monotonic() - start
            answer = folder / "answer.json"
            found = json.loads(answer.read_text()) if answer.exists() else {}
        print(f"  theirs {kind}/{number} with {calls} calls: {took_s:.1f} s {found}", flush=True)
        if found.get("correct"):
            seconds.append(took_s)
        else:
            failures.append(f"{found} {said[-1000:]}")
            print(failures[-1], flush=True)
        yield Theirs(kind, calls, tuple(seconds), tuple(failures))


def _child(folder: Path) -> str:
    """Run this file again as the child; what it printed."""
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "triton"), "TORCH_CUDA_ARCH_LIST": _architecture()}
    command = [sys.executable, str(Path(__file__).resolve()), "child", str(folder / "request.json")]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no end within {CHILD_TIMEOUT_S:g} s"
    return done.stdout + done.stderr


def _architecture() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}"


def evaluate_with_kernelbench(request: dict[str, Any]) -> None:
    """The child: import the checkout's evaluator and call it as its batch script does."""
    stand_in_for_what_is_missing()
    sys.path.insert(0, str(evaluator_folder(Path(request["checkout"]))))
    import torch
    from kernelbench.eval import eval_kernel_against_ref  # type: ignore[import-not-found]

    Path(request["build"]).mkdir()
    result = eval_kernel_against_ref(
        original_model_src=request["reference"],
        custom_model_src=request["candidate"],
        measure_performance=True,
        timing_method="cuda_event",
        verbose=False,
        num_correct_trials=CORRECTNESS_TRIALS,
        num_perf_trials=request["calls"],
        build_dir=request["build"],
        device=torch.device("cuda:0"),
        backend=request["backend"],
        precision=torch.float32,
    )
    answer = {"compiled": result.compiled, "correct": result.correctness, "runtime_ms": result.runtime}
    Path(request["answer"]).write_text(json.dumps(answer))


def evaluator_folder(checkout: Path) -> Path:
    """The folder that holds the package `kernelbench`. Exits with a line when the checkout has none."""
    if not (checkout / "src" / "kernelbench" / "eval.py").exists():
        sys.exit(f"{checkout}: no src/kernelbench/eval.py in it; name a checkout of ScalingIntelligence/KernelBench")
    return checkout / "src"


def stand_in_for_what_is_missing() -> None:
    """Empty modules for what evaluating does not call, where they are not installed."""
    for name, attribute in NOT_CALLED.items():
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            setattr(module, attribute, lambda *arguments, **options: None)
            sys.modules[name] = module


def pairs_of(operation: Operation, of: Problem, kind: str, count: int, tag: str) -> list[tuple[Problem, Candidate]]:
    """`count` distinct candidates of one problem."""
    return [(of, candidate(operation, kind, tag, number)) for number in range(count)]


def run(options: argparse.Namespace) -> None:
    """Measure what was asked for, and write the log after each part: a machine may be taken back."""
    from kernelwright.stages.measure import devices

    if options.kernelbench is not None:
        evaluator_folder(options.kernelbench)
    log = Log(devices.environment(options.device), (), ())
    tag = secrets.token_hex(3)
    of = problem(RELU, options.rows, options.columns)
    # As long as the batch script of the other side waits: a dozen builds at once take their time.
    effort = Effort(screen_rounds=0, rounds=options.rounds_each, region_ms=options.region_ms, timeout_s=180.0)
    counts = {"triton": options.triton, "cuda": options.cuda, "cuda_inline": options.inline}
    for kind in [k for k, count in counts.items() if count]:
        log = _with(log, measure_ours(kind, pairs_of(RELU, of, kind, counts[kind], tag), options.device, effort))
        options.log.write_text(json.dumps(to_json(log), indent=1))
    if options.small:
        small = [
            pair
            for operation in SMALL
            for pair in pairs_of(
                operation, problem(operation, SMALL_ROWS, SMALL_COLUMNS), "triton", options.small // len(SMALL), tag
            )
        ]
        log = _with(log, measure_ours("small", small, options.device, effort))
        options.log.write_text(json.dumps(to_json(log), indent=1))
    for kind, count in (("triton", options.their_triton), ("cuda_inline", options.their_cuda)):
        ours = next((o for o in log.ours if _comparable(o.kind, kind)), None)
        if options.kernelbench is None or ours is None or not count:
            continue
        # The cheap default first; through load_inline building hides how often is timed, so there once is enough.
        for calls in (DEFAULT_CALLS, ours.timed_calls) if kind == "triton" else (ours.timed_calls,):
            each = [candidate(RELU, kind, f"{tag}k{calls}", i) for i in range(count)]
            before = log.theirs
            for theirs in measure_theirs(options.kernelbench, kind, of, each, calls):
                log = Log(log.environment, log.ours, (*before, theirs))
                options.log.write_text(json.dumps(to_json(log), indent=1))
    for line in table(log):
        print(line)


def _with(log: Log, ours: Ours) -> Log:
    print(
        f"  ours {ours.kind}: {ours.correct} in {ours.seconds:.1f} s, {ours.timed_calls} timed calls each; "
        + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in ours.stages.items()),
        flush=True,
    )
    return Log(log.environment, (*log.ours, ours), log.theirs)


def _comparable(ours: str, theirs: str) -> bool:
    """Whether two kinds are the same kernel: CUDA reaches KernelBench through load_inline only."""
    return ours == theirs or (ours, theirs) == ("cuda", "cuda_inline")


def rows(log: Log) -> list[dict[str, Any]]:
    """Rates, and ratios over KernelBench's evaluator."""
    where, found = log.environment, []
    for ours in log.ours:
        rate = 60 / ours.seconds_each
        metric = "throughput.per_minute" if ours.kind == "small" else f"throughput.{ours.kind}.per_minute"
        found.append(row(metric, rate, "verified candidates a minute", ours.correct, where))
        if ours.kind != "small":
            calls = row(f"throughput.{ours.kind}.timed_calls", ours.timed_calls, "calls", ours.correct, where)
            found.append(calls)
        for theirs in log.theirs:
            if not _comparable(ours.kind, theirs.kind) or not theirs.seconds or not ours.correct:
                continue
            n = len(theirs.seconds)
            same = theirs.timed_calls != DEFAULT_CALLS or ours.timed_calls == DEFAULT_CALLS
            suffix = "" if same else "_default_calls"
            found.append(
                row(
                    f"throughput.{ours.kind}.ratio{suffix}",
                    theirs.seconds_each / ours.seconds_each,
                    "x KernelBench",
                    n,
                    where,
                )
            )
            if ours.kind == theirs.kind:
                name = f"throughput.{theirs.kind}.kernelbench_per_minute{suffix}"
                found.append(row(name, 60 / theirs.seconds_each, "verified candidates a minute", n, where))
    return found


def table(log: Log) -> list[str]:
    """The rows, for a person."""
    return [f"{r['metric']:<48} {r['value']:>10.4g} {r['unit']} (n {r['n']})" for r in rows(log)]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Verified candidates a minute.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="measure, and write the log")
    running.add_argument("--kernelbench", type=Path, default=None, help="checkout; without it only our side runs")
    running.add_argument("--log", type=Path, default=Path("throughput.json"))
    running.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: Triton candidates fail there")
    running.add_argument("--rows", type=int, default=ROWS)
    running.add_argument("--columns", type=int, default=COLUMNS)
    running.add_argument("--rounds-each", type=int, default=8, help="interleaved rounds of each candidate and eager")
    running.add_argument("--region-ms", type=float, default=20.0, help="what a round times of each")
    for name, count in (("triton", 48), ("cuda", 48), ("inline", 10), ("small", 96)):
        running.add_argument(f"--{name}", type=int, default=count, help="candidates on our side; 0: none")
    for name, count in (("triton", 4), ("cuda", 2)):
        running.add_argument(f"--their-{name}", type=int, default=count, help="candidates on KernelBench's side")
    reporting = commands.add_parser("report", help="write the rows")
    reporting.add_argument("log", type=Path)
    reporting.add_argument("--out", type=Path, default=TARGET)
    child = commands.add_parser("child", help="internal: one candidate on KernelBench's side")
    child.add_argument("request", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.command == "child":
        evaluate_with_kernelbench(json.loads(options.request.read_text()))
    else:
        log = from_json(Log, json.loads(options.log.read_text()))
        write(options.out, rows(log))
        print(*table(log), sep="\n")


if __name__ == "__main__":
    main()
