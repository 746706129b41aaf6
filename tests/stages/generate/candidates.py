"""Problems written from expressions over x, y and z, and the candidates that the C++ back end makes of them."""

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.generate import templates_for
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate import translate

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand({width}) + 0.5)
        self.bias = nn.Parameter(torch.randn({width}))

    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def problem(expressions: Sequence[str], inputs: Sequence[str], width: int = 50) -> Problem:
    """A model that returns the expressions' values (one alone as it is); `inputs` are expressions too."""
    result = expressions[0] if len(expressions) == 1 else f"({', '.join(expressions)})"
    names = ", ".join("xyz"[: len(inputs)])
    source = SOURCE.format(names=names, result=result, inputs=", ".join(inputs), width=width)
    return Problem("expressions", source, "expressions.py")


def template(of: Problem) -> Template:
    """The one C++ template."""
    (found,) = [t for t in templates_for(of, translate(of), "cpu") if t.backend == "cpp"]
    return found


def load(source: str) -> dict[str, Any]:
    """What the file defines. The library goes to KERNELWRIGHT_BUILD."""
    defined: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), defined)
    return defined


def pair(source: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """(reference, candidate) with the same parameters, from a candidate's file."""
    defined = load(source)
    reference, candidate = defined["Model"](), defined["ModelNew"]()
    candidate.load_state_dict(reference.state_dict(), strict=True)
    return reference, candidate
