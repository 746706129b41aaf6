"""From aten operators to scalar functions and row reductions: all rules, gathered."""

from kernelwright.stages.generate import activations, pointwise, rowwise
from kernelwright.stages.generate.pointwise import CONVERSIONS
from kernelwright.stages.generate.rowwise import trailing
from kernelwright.stages.generate.rules import POINTWISE, ROWWISE, base, covers

__all__ = ["CONVERSIONS", "POINTWISE", "ROWWISE", "activations", "base", "covers", "pointwise", "rowwise", "trailing"]
