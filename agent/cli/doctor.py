"""`kernelwright doctor`: what this machine offers, one line a question, each shortfall with its remedy."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from kernelwright.agent.cli.common import Json, emit, fold

if TYPE_CHECKING:
    from kernelwright.stages.doctor import Finding

SCHEMA = "kernelwright.doctor/1"

_MARKS = {True: ("ok", "green"), False: ("no", "red"), None: ("--", "yellow")}
"""Mark and colour by a finding's `ok`."""


app = typer.Typer()


@app.command()
def doctor(json: Json = False) -> None:
    """Check Python, torch, compilers, GPU, sandbox, model endpoint and disk; exit 3 if something needed is missing."""
    from kernelwright.stages.doctor import probe, usable

    findings = probe()
    ready = usable(findings)
    if json:
        emit({"schema": SCHEMA, "ready": ready, "findings": [asdict(f) for f in findings]})
    else:
        _show(findings)
    if not ready:
        raise typer.Exit(3)


def _show(findings: list[Finding]) -> None:
    """One line a finding; its remedy, if it has one, on the next."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.ok]
        first, *rest = fold(finding.detail, console, width + 6)
        console.print(Text.assemble((mark, colour), f"  {finding.name:<{width}}  {first}"))
        for line in rest:
            console.print(Text(f"{'':<{width + 6}}{line}"))
        for line in fold(finding.remedy, console, width + 6) if finding.remedy else ():
            console.print(Text(f"{'':<{width + 6}}{line}", style="dim"))
