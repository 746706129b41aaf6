"""The table of operator families."""

from __future__ import annotations

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate.template import Family, Template
from kernelwright.stages.translate.graph import OpInfo

FAMILIES: dict[str, Family] = {}
"""Filled by `@family`, by name."""


def family(name: str) -> _Registrar:
    """Register the decorated function as the family of this name."""
    return _Registrar(name)


class _Registrar:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, function: Family) -> Family:
        FAMILIES[self.name] = function
        return function


def templates_for(problem: Problem, info: OpInfo, device: str) -> list[Template]:
    """What all families offer for a problem on a device, in the order in which they were registered."""
    return [template for function in FAMILIES.values() for template in function(problem, info, device)]
