"""From a source's text to its report."""

from __future__ import annotations

import ast

import libcst as cst

from kernelwright.stages.static.report import Finding, SourceReport
from kernelwright.stages.static.rules import RULES
from kernelwright.stages.static.sites import Sites, collect
from kernelwright.stages.static.torch_calls import torch_calls
from kernelwright.stages.static.tunables import tunables
from kernelwright.stages.types import Backend
from kernelwright.stages.verify.source_form import read_form


def read(source: str) -> SourceReport:
    """Read a candidate. What Python cannot parse has only `syntax_error`."""
    try:
        ast.parse(source)
        sites = collect(cst.parse_module(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError, cst.ParserSyntaxError) as error:
        line = getattr(error, "lineno", None) or getattr(error, "raw_line", None) or 1
        said = getattr(error, "msg", None) or getattr(error, "message", None) or type(error).__name__
        return SourceReport(syntax_error=Finding("syntax", line, str(said)))
    warnings = {finding for rule in RULES for finding in rule(sites)}
    form = read_form(source)
    return SourceReport(
        form=form,
        inline=_calls(sites, "torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline"),
        compiles=_calls(sites, "torch.compile") or _decorated(sites, "torch.compile"),
        torch_calls=torch_calls(sites, form.kernels),
        tunables=tunables(sites),
        warnings=tuple(sorted(warnings, key=lambda f: (f.line, f.rule, f.sentence))),
    )


def backend_of(source: str) -> Backend:
    """The back end that a source's own kernels are of; TORCH when it has none."""
    return read_form(source).backend


def _calls(sites: Sites, *names: str) -> bool:
    return any(call.name in names for call in sites.calls)


def _decorated(sites: Sites, name: str) -> bool:
    return any(sites.names.dotted(d.decorator) == name for node, _ in sites.functions for d in node.decorators)
