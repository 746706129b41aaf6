"""Small tasks for tests: a problem from a forward expression, its plan, and what a candidate would fail on."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.kernelbench import contract
from kernelwright.kernelbench.contract import Contract
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.sandbox import tree
from kernelwright.stages.verify.cases import Case, copy_of
from kernelwright.stages.verify.oracle import Expected
from kernelwright.stages.verify.probes import Plan, plan
from kernelwright.stages.verify.tolerance import compare

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

{constants}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def task(result: str, *inputs: str, init: str = "pass", constants: str = "") -> Contract:
    """The contract of `def forward(self, x, y, z): return <result>`; `init` ends the constructor."""
    names = ", ".join("xyz"[: len(inputs)])
    source = SOURCE.format(result=result, names=names, inputs=", ".join(inputs), init=init, constants=constants)
    return contract.load(Problem("task", source, "task.py"))


def model_of(of: Contract, device: str = "cpu") -> torch.nn.Module:
    return contract.instantiate(of, device, 1)[0]


def planned(of: Contract, seed: int = 3, *, thorough: bool = True) -> Plan:
    return plan(of, model_of(of), "cpu", seed, thorough=thorough)


Candidate = Callable[..., Any]
"""Takes the arguments, then the state by name as keyword `state`."""


def outputs(candidate: Candidate, case: Case) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    arguments = case.arguments([copy_of(t) for t in case.tensors])
    with torch.no_grad():
        tree.flatten(candidate(*arguments, state=case.state), found)
    return found


def right(found: Sequence[torch.Tensor], expected: Expected) -> bool:
    return all(
        check.passed
        for i, output in enumerate(found)
        for check in compare("", output, expected.exact[i], expected.eager[i], expected.bounds[i])
    )


def failed(series: Plan, candidate: Candidate) -> list[str]:
    """Labels of the cases on which a candidate is wrong."""
    return [case.label for case, expected in series.pairs if not right(outputs(candidate, case), expected)]
