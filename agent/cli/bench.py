"""`kernelwright bench`: time candidates side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from kernelwright.agent.comparison import Benched

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    candidates: Annotated[list[Path], typer.Argument(help="Python files that define ModelNew.")],
    ref: Reference,
    device: Device = "cpu",
    shape: Shape = None,
    inputs: Inputs = None,
    init: Init = None,
    backend: BackendChoice = "auto",
    precision: PrecisionChoice = None,
    no_library: NoLibrary = False,
    baselines: BaselineNames = "eager,compile",
    seed: Seed = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:
    """Verify candidates, time them beside the baselines, and rank those that are correct.

    Exit status: 0 at least one is a gain over eager, 1 none is, 2 a file or an option cannot be used, 3 the machine
    lacks something, 6 a candidate interfered with its own evaluation, 130 interrupted.
    """
    from kernelwright.agent.verification import command_line, read_candidate

    terms = terms_of(precision, baselines, seed, device=device, no_library=no_library, timeout_s=timeout)
    given = [(str(path), read_candidate(path, backend_of(backend))) for path in candidates]
    problem, words = problem_of(ref, shape, inputs, init)
    if backend != "auto":
        words += ["--backend", backend]
    command = command_line("bench", [name for name, _ in given], words, terms)
    from kernelwright.agent.comparison import as_json, compare

    with session(problem.name) as watch:
        found = compare(given, problem, terms, watch, command)
    if json:
        emit(as_json(found))
    else:
        _show(found)
    raise typer.Exit(int(found.exit_code))


def _show(found: Benched) -> None:
    from kernelwright.agent.ui import table
    from kernelwright.agent.ui.table import Column
    from kernelwright.agent.ui.view import ratio_text

    beside = found.baselines()
    columns = [
        Column("rank", right=True),
        Column("candidate"),
        Column("ms", right=True),
        *(Column(f"over {name}", right=True) for name in beside),
    ]
    rows = []
    for entry in found.entries:
        measurement = entry.result.measurement
        if measurement is None:
            continue
        ratios = [measurement.speedups.get(name) for name in beside]
        cells = [ratio_text(ratio) if ratio else "" for ratio in ratios]
        rows.append([str(entry.rank), entry.name, f"{measurement.candidate.median_ms:.4g}", *cells])
    if rows:
        table.show(columns, rows)
        print("  ".join(["beside them:", *(f"{name} {ms:.4g} ms" for name, ms in beside.items())]))
    for first, second in found.indistinguishable:
        print(f"cannot be told apart: {first} and {second}")
    for entry in found.entries:
        verdict = entry.result.verdict
        if entry.result.measurement is None:
            reason = next(iter(verdict.message.strip().splitlines()), "")
            print(f"refused: {entry.name}: {verdict.status.value}{f': {reason}' if reason else ''}")
    gains = [entry.name for entry in found.gains]
    print(f"faster than eager: {', '.join(gains)}" if gains else "none is faster than eager beyond doubt")
    print(f"again: {found.command}")
