"""`kernelwright jobs`: export a bundle, run it elsewhere with `kernelwright worker`, import its results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kernelwright.agent.cli.common import DEFAULT_ARCHIVE, ArchivePath, Json, emit
from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.stages.execute import scratch

app = typer.Typer(help="Write jobs for a machine with a GPU, and read its results.", no_args_is_help=True)


@app.command("export")
def export_jobs(
    problems: Annotated[list[str], typer.Argument(help="Files or suite problems, as for `optimize`.")],
    out: Annotated[Path, typer.Option(help="The bundle: a folder that does not exist yet.")],
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the bundle will run.")] = "cuda",
    shape: Annotated[str | None, typer.Option(help="A label of the problems' SHAPES.")] = None,
    max_candidates: Annotated[int, typer.Option(min=1, help="Candidates a problem.")] = 12,
    seed: Annotated[int | None, typer.Option(help="Of the inputs and the choices; drawn anew otherwise.")] = None,
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Propose candidates, check them here as far as can be, and write those that pass as a bundle.

    Triton candidates are checked without a GPU: by Triton's interpreter, and by compiling for compute capability 9.0.
    """
    from kernelwright.agent.offline import export
    from kernelwright.agent.settings import settings_from
    from kernelwright.kernelbench.sources import from_spec
    from kernelwright.stages.execute.job import Effort

    loaded = [from_spec(spec, shape=shape) for spec in problems]
    given = {"device": device, "max_candidates": max_candidates, "seed": seed, "archive": archive, "runs": runs}
    settings = settings_from(given)
    with scratch.folder("jobs") as cache:
        done = export(loaded, settings, out, Effort(rounds=settings.rounds), cache, _say)
    rows = [{"run": e.run, "problem": e.problem.name, "sent": e.sent, "held_back": e.held_back} for e in done]
    if json:
        emit({"schema": "kernelwright.bundle/1", "bundle": str(out), "runs": rows})
        return
    for row in rows:
        print(f"{row['problem']}: {row['sent']} candidates sent, {row['held_back']} held back (run {row['run']})")
    print(f"bundle {out}: copy it with the source tree to the machine, and run there:")
    print(f"  PYTHONPATH=src python3 -m kernelwright.stages.execute.worker {out.name}")


@app.command("import")
def import_jobs(
    bundle: Annotated[Path, typer.Argument(help="A bundle that has been run, wholly or in part.")],
    archive: ArchivePath = DEFAULT_ARCHIVE,
    runs: Annotated[Path, typer.Option(help="Folder of the runs' folders.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Store a bundle's results in the archive, and write a report for each of its runs."""
    from kernelwright.agent.finish import finish
    from kernelwright.agent.offline import bring_back
    from kernelwright.agent.ui import summary

    found: list[dict[str, Any]] = []
    for opened in bring_back(bundle, archive, runs):
        view, outcome, paths = finish(opened)
        print("\n".join(summary.lines(view, outcome, paths)), file=sys.stderr if json else sys.stdout)
        found.append(summary.as_json(view, outcome, paths))
    if json:
        emit({"schema": "kernelwright.bundle/1", "bundle": str(bundle), "runs": found})
    met = bool(found) and all(one["exit_code"] == 0 for one in found)
    raise typer.Exit(int(ExitCode.GOAL_MET if met else ExitCode.GOAL_NOT_MET))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
