"""The built-in generator. Importing the package registers its families."""

from kernelwright.stages.generate import cpp, triton_family
from kernelwright.stages.generate.registry import FAMILIES, family, templates_for

__all__ = ["FAMILIES", "cpp", "family", "templates_for", "triton_family"]
