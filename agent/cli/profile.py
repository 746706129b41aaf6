"""`kernelwright profile`: say what limits one candidate."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.cli.common import Json, emit
from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.cli.judging import (
    BackendChoice,
    Device,
    Init,
    Inputs,
    Reference,
    Seed,
    Shape,
    Timeout,
    backend_of,
    problem_of,
    session,
    terms_of,
)

if TYPE_CHECKING:
    from kernelwright.agent.verification import Terms, Watch
    from kernelwright.kernelbench.problem import Problem
    from kernelwright.stages.execute.job import JobResult
    from kernelwright.stages.types import Candidate

app = typer.Typer(add_completion=False)


@app.command()
def profile(
    candidate: Annotated[Path, typer.Argument(help="A Python file that defines ModelNew.")],
    ref: Reference,
    device: Device = "cpu",
    shape: Shape = None,
    inputs: Inputs = None,
    init: Init = None,
    backend: BackendChoice = "auto",
    seed: Seed = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:
    """Say what limits a candidate: hardware counters, torch's profiler and the compiled code, whichever can be had.

    With --device cuda and no GPU here, Triton and CUDA candidates are compiled, and the code alone is looked at.
    Nothing is judged or stored. Exit status: 0 there is a profile, 1 the candidate does not compile or run, 2 a file or
    an option cannot be used, 3 the machine lacks something, 130 interrupted.
    """
    from kernelwright.agent.ui.profile import as_json, print_profile
    from kernelwright.agent.verification import command_line, read_candidate, with_own_name
    from kernelwright.stages.types import Status

    terms = terms_of(None, "eager,compile", seed, device=device, timeout_s=timeout)
    given = read_candidate(candidate, backend_of(backend))
    problem, words = problem_of(ref, shape, inputs, init)
    if backend != "auto":
        words += ["--backend", backend]
    with session(str(candidate)) as watch:
        result = with_own_name(_profiled(given, problem, terms, watch), str(candidate))
    command = command_line("profile", [str(candidate)], words, terms)
    runs = result.verdict.status is Status.UNKNOWN
    code = ExitCode.GOAL_MET if runs else ExitCode.GOAL_NOT_MET
    if json:
        emit(as_json(result, str(candidate), problem.name, command) | {"exit_code": int(code)})
    else:
        print_profile(result, command)
    raise typer.Exit(int(code))


def _profiled(candidate: Candidate, problem: Problem, terms: Terms, watch: Watch) -> JobResult:
    from kernelwright.agent.verification import check, job_of, judged, worker
    from kernelwright.stages.profile.ladder import needs_device, profile_job

    with worker() as executor:
        executor.start()
        job = dataclasses.replace(job_of("given/0", candidate, problem, terms), baselines=())
        if needs_device(job):
            check(problem, terms.device)
        return judged(executor, profile_job(job), watch)
