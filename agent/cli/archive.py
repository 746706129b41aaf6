"""`kernelwright archive`: look at candidates, verdicts and times."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath, Json, emit, existing_archive
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.codec import to_json
from kernelwright.stages.types import Backend, Status

if TYPE_CHECKING:
    from kernelwright.stages.archive.reads import Listed

SCHEMA = "kernelwright.archive/1"

app = typer.Typer(help="Look at candidates, verdicts and times.", no_args_is_help=True, add_completion=False)


@app.command("list")
def list_candidates(
    problem: Annotated[
        str | None, typer.Option(help="Of this problem: its name, or what `optimize` was given, such as core/softmax.")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Judged on this device.")] = None,
    backend: Annotated[Backend | None, typer.Option(help="Written for this back end.")] = None,
    status: Annotated[Status | None, typer.Option(help="With this verdict.")] = None,
    correct: Annotated[bool, typer.Option("--correct", help="Only correct ones.")] = False,
    confirmed: Annotated[
        bool, typer.Option("--confirmed", help="Only those found correct when measured again on fresh inputs.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 50,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    json: Json = False,
) -> None:
    """List judged candidates, the largest speedup over eager first; one row a run and candidate."""
    existing_archive(archive)
    from kernelwright.stages.archive import Archive
    from kernelwright.stages.archive.reads import listed

    with Archive.open(archive) as opened:
        found = listed(
            opened,
            problem=problem,
            device=device,
            backend=backend,
            status=status,
            correct_only=correct,
            confirmed_only=confirmed,
            limit=limit + 1,
        )
    if json:
        emit({"schema": SCHEMA, "archive": str(archive), "candidates": to_json(found[:limit])})
    elif found:
        _print_list(found[:limit])
    else:
        print(f"no candidate in {archive} is like that", file=sys.stderr)
    if len(found) > limit:
        print(f"these are the first {limit}; --limit shows more", file=sys.stderr)


@app.command()
def show(
    candidate: Annotated[str, typer.Argument(help="The first four or more digits of its hash.")],
    source: Annotated[bool, typer.Option("--source", help="Print the candidate's file and nothing else.")] = False,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    json: Json = False,
) -> None:
    """Show a candidate: its verdicts with their evidence, its times, its resources, and its relatives.

    `kernelwright archive show HASH --source > best.py` takes the file out.
    """
    if source and json:
        raise UsageError("--source and --json exclude each other: the JSON object holds the source")
    existing_archive(archive)
    from kernelwright.stages.archive import Archive
    from kernelwright.stages.archive.reads import shown

    with Archive.open(archive) as opened:
        found = shown(opened, candidate)
    if json:
        emit({"schema": SCHEMA, "archive": str(archive), "hash": found.candidate.hash, **to_json(found)})
    elif source:
        # Bytes: the hash is of these, whatever the terminal's encoding is.
        sys.stdout.buffer.write(found.candidate.source.encode())
    else:
        from kernelwright.agent.ui.candidate import print_candidate

        print_candidate(found)


def _print_list(found: list[Listed]) -> None:
    from kernelwright.agent.ui import table
    from kernelwright.agent.ui.table import Column
    from kernelwright.agent.ui.view import ratio_text

    columns = [
        Column("candidate"),
        Column("over eager", right=True),
        Column("ms", right=True),
        Column("verdict"),
        Column("stage"),
        Column("problem"),
        Column("device"),
        Column("back end"),
        Column("directive"),
        Column("run"),
        Column("judged (UTC)"),
    ]
    rows = [
        [
            row.hash[:12],
            ratio_text(row.speedup) if row.speedup else "",
            "" if row.median_ms is None else f"{row.median_ms:.4g}",
            row.status.value,
            "screened" if row.screened_out else row.stage,
            f"{row.problem}:{row.shape}" if row.shape else row.problem,
            row.device,
            row.backend.value,
            row.directive or row.template,
            row.run,
            f"{row.created_at:%Y-%m-%d %H:%M}",
        ]
        for row in found
    ]
    table.show(columns, rows)
