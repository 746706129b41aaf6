"""`kernelwright problems`: the suites that ship with the product, and whether a problem can be graded."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.cli.common import Json, emit, fold
from kernelwright.agent.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from kernelwright.stages.types import Check
    from kernelwright.stages.verify.admission import MutationScore
    from kernelwright.stages.verify.memory_needs import Needs
    from kernelwright.stages.verify.probes import Plan

app = typer.Typer(help="Look at problems: those that ship with the product, and your own.", no_args_is_help=True)
SEED = 20


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
    from rich.console import Console

    console = Console(highlight=False)
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        first, *rest = fold(summary, console, width + 2)
        print(f"{name:<{width}}  {first}")
        for line in rest:
            print(f"{'':<{width}}  {line}")


@app.command("check")
def check_problem(
    problem: Annotated[str, typer.Argument(help="FILE.py, FILE.py:Class or suite/problem.")],
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    shape: Annotated[str | None, typer.Option("--shape", help="A label of the file's SHAPES.")] = None,
    json: Json = False,
) -> None:
    """Say whether a problem can tell right from wrong: its checks, and the planted faults that they catch.

    Exit status 0: it can be graded. 1: it cannot, and the table says why.
    """
    from kernelwright.kernelbench import contract as contracts
    from kernelwright.kernelbench.sources import from_spec
    from kernelwright.stages.verify import admission, memory_needs, probes
    from kernelwright.stages.verify.oracle import Oracle

    found = from_spec(problem, shape=shape)
    contract = contracts.load(found)
    needs = memory_needs.predict(contract, device)
    memory_needs.require(needs, device)
    contracts.check(found, device)
    model, _ = contracts.instantiate(contract, device, SEED)
    oracle = Oracle(model, contract.tolerance, contract.precision)
    plan = probes.plan(contract, model, device, SEED, oracle=oracle)
    checks = admission.admit(contract, model, plan.pairs, contract.precision, oracle=oracle)
    gradable = all(c.passed for c in checks)
    score = admission.mutation_score(contract, model, plan.pairs, contract.precision, oracle=oracle)
    if json:
        emit(_as_json(problem, contract.precision, needs, plan, checks, score))
    else:
        _print(problem, contract.precision, needs, plan, checks, score)
    if not gradable:
        raise typer.Exit(int(ExitCode.GOAL_NOT_MET))


def _as_json(
    problem: str,
    precision: str,
    needs: Needs | None,
    plan: Plan,
    checks: tuple[Check, ...],
    score: MutationScore,
) -> dict[str, Any]:
    return {
        "schema": "kernelwright.check/1",
        "problem": problem,
        "gradable": all(c.passed for c in checks),
        "precision": str(precision),
        "oracle": sorted({e.precision for e in plan.expected}),
        "memory_bytes": None if needs is None else needs.bytes,
        "cases": [{"name": c.label, "finds": c.why} for c in plan.cases],
        "dropped": list(plan.dropped),
        "checks": [dataclasses.asdict(c) for c in checks],
        "faults": {"planted": score.planted, "caught": score.caught, "missed": list(score.missed)},
    }


def _print(
    problem: str,
    precision: str,
    needs: Needs | None,
    plan: Plan,
    checks: tuple[Check, ...],
    score: MutationScore,
) -> None:
    gradable = all(c.passed for c in checks)
    oracle = " and ".join(sorted({e.precision for e in plan.expected}))
    print(f"{problem}: {'gradable' if gradable else 'ungradable'}")
    print(f"  contract {precision}, right answers in {oracle}, {len(plan.cases)} cases")
    if needs is not None:
        print(f"  needs about {needs.bytes / 2**20:.3g} MiB")
    for dropped in plan.dropped:
        print(f"  left out  {dropped}")
    width = max(len(c.name) for c in checks)
    for c in checks:
        print(f"  {'pass' if c.passed else 'FAIL'}  {c.name:<{width}}  {c.detail}".rstrip())
    print(f"  planted faults caught: {len(score.caught)} of {score.planted}")
    for name in score.missed:
        print(f"  not caught  {name}")
