"""Handlers that compute: the answer may come from the fallback, call after call."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites


def handler_computes(sites: Sites) -> Iterator[Finding]:
    """An `except` inside of a function that calls something and goes on; one that only raises, or that guards an import
    of the module, is not meant."""
    for node, place in sites.handlers:
        if place.functions and _calls(sites, node) and not _raises(node):
            sentence = (
                "The handler calls something and goes on: if it is taken in every call, the answer is not the kernel's."
            )
            yield Finding("handler-computes", place.line, sentence)


def _raises(node: cst.ExceptHandler) -> bool:
    return bool(m.findall(node.body, m.Raise()))


def _calls(sites: Sites, node: cst.ExceptHandler) -> bool:
    calls = [sites.names.dotted(c.func) for c in m.findall(node.body, m.Call()) if isinstance(c, cst.Call)]
    harmless = ("print", "warnings.warn", "logging.", "isinstance", "str", "repr")
    return any(not name.startswith(harmless) for name in calls) or bool(
        m.findall(node.body, m.BinaryOperation(operator=m.MatrixMultiply()))
    )
