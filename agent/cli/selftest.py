"""`kernelwright selftest`: does the referee, on this machine, refuse what cheats and accept what is honest?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kernelwright.agent.cli.common import Json, emit
from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.execute import scratch

if TYPE_CHECKING:
    from kernelwright.stages.execute.selftest import SelftestRow

SCHEMA = "kernelwright.selftest/1"

app = typer.Typer(add_completion=False)


@app.command()
def selftest(
    adversarial: Annotated[
        bool, typer.Option("--adversarial", help="The whole corpus: minutes. Without it, one task: seconds.")
    ] = False,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the candidates run.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Judge every case so often, each time on other inputs.")] = 1,
    case: Annotated[list[str] | None, typer.Option(help="Only this case; may be given again.")] = None,
    list_cases: Annotated[bool, typer.Option("--list", help="Name the cases, and run none.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Write hacks.refused and hacks.honest_accepted to this file, as docs/results has."),
    ] = None,
    json: Json = False,
) -> None:
    """Try the referee on candidates that cheat, and on honest ones that only look like it.

    The candidates are harmless by design, and run in the sandbox. Exit status: 0 every case got the answer that it must
    get, 1 one did not, 2 an option cannot be used, 3 the machine cannot judge.
    """
    from kernelwright.stages.execute.selftest import choose, run, write_results

    chosen = choose(device, case or (), quick=not (adversarial or list_cases))
    if list_cases:
        _list(chosen, json)
        return
    if results is not None and not adversarial:
        raise UsageError("--results holds the whole corpus' rates: give --adversarial too")
    _require(device)
    rows: list[SelftestRow] = []
    with scratch.folder("selftest") as folder:
        from kernelwright.stages.execute.local import LocalExecutor

        def executor() -> LocalExecutor:
            return LocalExecutor(cache=folder / "cache", log=folder / "worker.log")

        try:
            for row in run(chosen, device, executor, repeats):
                rows.append(row)
                _show(row, len(rows), len(chosen) * repeats, to_stderr=json)
        except KeyboardInterrupt:
            print(f"interrupted after {len(rows)} of {len(chosen) * repeats}", file=sys.stderr)
            raise
    code = _exit_code(rows)
    if json:
        emit(_as_json(rows, device, repeats, code))
    else:
        _summary(rows)
    if results is not None:
        write_results(results, rows, f"kernelwright selftest --adversarial --device {device} --repeats {repeats}")
    raise typer.Exit(int(code))


def _require(device: str) -> None:
    """Show what no candidate can be judged without. Raises EnvironmentFault for what is missing."""
    from kernelwright.kernelbench.errors import EnvironmentFault
    from kernelwright.stages.doctor import probe

    needed = ("python", "torch", "triton", "gpu") if device == "cuda" else ("python", "torch", "g++")
    for finding in probe():
        if finding.name in needed:
            print(f"{'ok' if finding.ok else 'no'}  {finding.name:<8}{finding.detail}", file=sys.stderr)
            if not finding.ok:
                raise EnvironmentFault(f"{finding.name}: {finding.detail}. {finding.remedy}".strip())


def _list(chosen: list[Any], json: bool) -> None:
    if json:
        emit({"schema": SCHEMA, "cases": [{k: getattr(c, k) for k in _LISTED} for c in chosen]})
        return
    from kernelwright.agent.ui import table
    from kernelwright.agent.ui.table import Column

    table.show([Column(name) for name in _LISTED], [[str(getattr(c, name)) for name in _LISTED] for c in chosen])


_LISTED = ("id", "expected", "device", "backend", "reason")


def _show(row: SelftestRow, number: int, total: int, *, to_stderr: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from kernelwright.stages.execute.selftest import line

    console = Console(highlight=False, soft_wrap=True, stderr=to_stderr)
    text = f"{number:>{len(str(total))}}/{total} {line(row)}"
    if console.is_terminal and len(text) > console.width:
        text = f"{text[: console.width - 3]}..."
    console.print(Text(text, style="" if row.as_expected else "red"))


def _summary(rows: list[SelftestRow]) -> None:
    """The rates, and how often each group got which verdict."""
    from collections import Counter

    from kernelwright.agent.ui import table
    from kernelwright.agent.ui.table import Column
    from kernelwright.stages.execute.selftest import tally

    groups: dict[str, list[SelftestRow]] = {}
    for row in sorted(rows, key=lambda row: (row.expected, row.group)):
        groups.setdefault(row.group, []).append(row)
    cells = []
    for group, same in groups.items():
        right = sum(row.as_expected for row in same)
        words = Counter(row.status.value for row in same)
        verdicts = ", ".join(f"{word} {count}" for word, count in words.most_common())
        cells.append([group, same[0].expected, f"{right}/{len(same)}", verdicts])
    print()
    table.show([Column("group"), Column("must"), Column("as it must", right=True), Column("verdicts")], cells)
    print()
    for words_, expected in (("hacks refused", "reject"), ("honest accepted", "accept")):
        count = tally(rows, expected)
        missing = f", {count.not_judged} not judged" if count.not_judged else ""
        print(f"{words_}: {count.right}/{count.judged}{missing}")
    for row in rows:
        if not row.as_expected:
            print(f"  {row.id}: must {row.expected}, got {row.status.value}")


def _exit_code(rows: list[SelftestRow]) -> ExitCode:
    if any(row.judged and not row.as_expected for row in rows):
        return ExitCode.GOAL_NOT_MET
    return ExitCode.GOAL_MET if all(row.judged for row in rows) else ExitCode.ENVIRONMENT


def _as_json(rows: list[SelftestRow], device: str, repeats: int, code: ExitCode) -> dict[str, Any]:
    from kernelwright.stages.codec import to_json
    from kernelwright.stages.execute.selftest import tally

    where = next((row.environment for row in rows if row.environment), None)
    return {
        "schema": SCHEMA,
        "device": device,
        "repeats": repeats,
        "hacks": to_json(tally(rows, "reject")),
        "honest": to_json(tally(rows, "accept")),
        "rows": [
            {k: v for k, v in to_json(row).items() if k != "environment"} | {"as_expected": row.as_expected}
            for row in rows
        ],
        "environment": to_json(where),
        "exit_code": int(code),
    }
