"""`kernelwright problems`: the suites that ship with the product."""

from __future__ import annotations

import ast

import typer

from kernelwright.agent.cli.common import Json, emit

app = typer.Typer(help="Look at the problems that ship with the product.", no_args_is_help=True)


@app.callback()
def problems() -> None:
    """Keep `list` a verb of its own while it is the only one."""


@app.command("list")
def list_problems(json: Json = False) -> None:
    """List every problem with its first line; `kernelwright optimize NAME` takes the name."""
    from kernelwright.kernelbench.sources import suite, suites

    rows = [
        (f"{name}/{problem.name}", (ast.get_docstring(ast.parse(problem.source)) or "").split("\n")[0])
        for name in suites()
        for problem in suite(name)
    ]
    if json:
        emit(
            {
                "schema": "kernelwright.problems/1",
                "problems": [{"name": name, "summary": summary} for name, summary in rows],
            }
        )
        return
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        print(f"{name:<{width}}  {summary}")
