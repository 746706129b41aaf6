"""The few things that reading alone may refuse: they leave nothing to run, or contradict what is claimed."""

from __future__ import annotations

from kernelwright.stages.static.report import SourceReport
from kernelwright.stages.types import Backend, Check, Status
from kernelwright.stages.verify.source_form import claim_check


def static_checks(report: SourceReport, claimed: Backend | None) -> tuple[Check, ...]:
    """The checks of a read source. `claimed` is the back end that it is said to be of; None when nothing is said."""
    if error := report.syntax_error:
        where = f"candidate.py:{error.line}: {error.sentence}"
        return (Check("Python can parse it", passed=False, detail=where, refutes=Status.COMPILE_ERROR),)
    defines = report.form.defines_model
    detail = "" if defines else "the file binds no name ModelNew"
    return (
        Check("Python can parse it", passed=True, refutes=Status.COMPILE_ERROR),
        Check("defines ModelNew", defines, detail=detail, refutes=Status.STATIC_REJECT),
        claim_check(report.form, claimed),
    )
