"""Read the foreign source that a candidate carries as module-level literals, without importing the candidate."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from typing import Any


class NotALiteral(Exception):
    """The message says which name is missing or wrong, and where."""


def read_source(source: str, name: str) -> str:
    """The module-level string `name`. Raises NotALiteral."""
    value = _assigned(source).get(name)
    if value is None:
        raise NotALiteral(f"the candidate has no module-level literal {name}, a string with the kernel's source")
    text = _literal(value, name)
    if not isinstance(text, str):
        raise NotALiteral(f"candidate.py:{value.lineno}: {name} is a {type(text).__name__}, not a string")
    return text


def read_flags(source: str, name: str, *, optional: bool) -> list[str]:
    """The module-level list of strings `name`; empty when it is absent and `optional`. Raises NotALiteral."""
    value = _assigned(source).get(name)
    if value is None:
        if optional:
            return []
        raise NotALiteral(f"the candidate has no module-level literal {name}, a list of strings")
    flags = _literal(value, name)
    if not isinstance(flags, list | tuple) or not all(isinstance(flag, str) for flag in flags):
        raise NotALiteral(f"candidate.py:{value.lineno}: {name} is not a list of strings")
    return list(flags)


def digest(flags: Sequence[str], source: str) -> str:
    """The name of the built file: first 32 hexadecimal digits of the SHA-256 of flags and source, joined by newlines.

    Candidates compute the same digest to find their library; see tests/stages/compile/candidates.
    """
    return hashlib.sha256("\n".join([*flags, source]).encode()).hexdigest()[:32]


def _assigned(source: str) -> dict[str, ast.expr]:
    """Right-hand sides of the module's own assignments, by name; the last one wins, as when Python runs it."""
    found: dict[str, ast.expr] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            found.update({t.id: statement.value for t in statement.targets if isinstance(t, ast.Name)})
        elif isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement.value
    return found


def _literal(value: ast.expr, name: str) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        message = f"candidate.py:{value.lineno}: {name} must be a literal, not an expression that runs"
        raise NotALiteral(message) from None
