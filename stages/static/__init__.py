"""Read a candidate's source without running it: what it is, what it still calls, and what is worth a second look.

    report = read(source)                       # never raises for what the source holds
    static_checks(report, claimed=Backend.CPP)  # the few things that reading alone may refuse

Words in comments, strings and docstrings mean nothing here. Warnings are for people and for prompts; none decides.
"""

from kernelwright.stages.static.checks import static_checks
from kernelwright.stages.static.reading import backend_of, read
from kernelwright.stages.static.report import Finding, SourceReport, TorchCall, Tunable

__all__ = ["Finding", "SourceReport", "TorchCall", "Tunable", "backend_of", "read", "static_checks"]
