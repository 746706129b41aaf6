"""Candidates that compile themselves, when they are imported or first called.

Files from elsewhere call `torch.utils.cpp_extension.load_inline`, and every Triton kernel is compiled at its first
launch. On the machine that evaluates them this happens in the sandbox's build phase, in a process that is thrown away
(`execute/building.py`); there is nothing to compile ahead.
"""

from __future__ import annotations

import ast

from kernelwright.stages.types import Backend, Candidate

NOTE = "compiled in the sandbox, when it was imported and first called"
_EXTENSION_LOADERS = frozenset({"cpp_extension", "load_inline"})


def calls_extension_loader(source: str) -> bool:
    """Whether the source names torch's extension loader; False for what Python cannot parse."""
    return bool(_names(source) & _EXTENSION_LOADERS)


def builds_itself(candidate: Candidate) -> bool:
    """Whether importing and calling the candidate may start a compiler."""
    names = _names(candidate.source)
    return candidate.backend is Backend.TRITON or bool(names & _EXTENSION_LOADERS) or {"torch", "compile"} <= names


def _names(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
    return found
