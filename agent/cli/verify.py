"""`kernelwright verify`: judge one candidate, with all the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.agent.cli.common import Json, emit
from kernelwright.agent.cli.judging import (
    BackendChoice,
    BaselineNames,
    Device,
    Init,
    Inputs,
    NoLibrary,
    PrecisionChoice,
    Reference,
    Seed,
    Shape,
    Timeout,
    backend_of,
    problem_of,
    session,
    terms_of,
)

app = typer.Typer(add_completion=False)


@app.command()
def verify(
    candidate: Annotated[Path, typer.Argument(help="A Python file that defines ModelNew.")],
    ref: Reference,
    device: Device = "cpu",
    shape: Shape = None,
    inputs: Inputs = None,
    init: Init = None,
    backend: BackendChoice = "auto",
    precision: PrecisionChoice = None,
    no_library: NoLibrary = False,
    no_time: Annotated[bool, typer.Option("--no-time", help="Only verify; do not time it.")] = False,
    baselines: BaselineNames = "eager,compile",
    seed: Seed = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:
    """Judge a candidate against a reference, time it beside the baselines, and print the evidence.

    Exit status: 0 correct, 1 any other verdict, 2 a file or an option cannot be used, 3 the machine lacks something,
    6 the candidate interfered with its own evaluation, 130 interrupted.
    """
    from kernelwright.agent.verification import command_line, judge, read_candidate

    terms = terms_of(
        precision, baselines, seed, device=device, no_library=no_library, timed=not no_time, timeout_s=timeout
    )
    given = read_candidate(candidate, backend_of(backend))
    problem, words = problem_of(ref, shape, inputs, init)
    if backend != "auto":
        words += ["--backend", backend]

    def command(name: str) -> str:
        return command_line("verify", [name], words, terms)

    with session(str(candidate)) as watch:
        (verified,) = judge([(str(candidate), given)], problem, terms, watch, command)
    from kernelwright.agent.evidence import as_json, evidence_of, exit_code

    found = evidence_of(verified)
    if json:
        emit(as_json(found))
    else:
        from kernelwright.agent.ui.evidence import print_evidence

        print_evidence(found)
    raise typer.Exit(int(exit_code([verified.verdict])))
