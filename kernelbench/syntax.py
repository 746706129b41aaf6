"""What a problem's source says without being run: parsed, names found, numbers replaced. Standard library only."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelwright.kernelbench.errors import UsageError

Shapes = Mapping[str, Mapping[str, int]]
"""Label to the module-level numbers that it overrides."""

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `ast.parse` raises: the last three for null bytes and for nesting beyond the parser's stack."""


def parse(source: str, origin: str) -> ast.Module:
    """Parse a problem's source. Raises UsageError, `origin:line: what`."""
    try:
        return ast.parse(source)
    except _UNPARSABLE as error:
        line = getattr(error, "lineno", None) or 1
        raise UsageError(f"{origin}:{line}: not Python: {describe(error)}") from error


def parse_expression(text: str, option: str) -> list[str]:
    """Split `text`, a Python expression, at its top-level commas (a list's brackets are taken off first).

    `option` (`--inputs`) names the culprit in the UsageError.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except _UNPARSABLE as error:
        raise UsageError(f"{option}: not a Python expression: {describe(error)}: {' '.join(text.split())}") from error
    items = tree.elts if isinstance(tree, ast.Tuple | ast.List) else [tree]
    return [ast.unparse(item) for item in items]


def describe(error: BaseException) -> str:
    """An exception's text as one line of bounded length."""
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def bindings(tree: ast.Module) -> dict[str, int]:
    """Names that the module binds at its top level, with the line of the last binding; `*` stands for a star import."""
    visitor = _Bindings()
    visitor.visit(tree)
    return visitor.lines


class _Bindings(ast.NodeVisitor):
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.lines[node.name] = node.lineno

    def _own_scope(self, node: ast.AST) -> None:
        """Names bound inside stay there."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition
    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _own_scope

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.lines[node.id] = node.lineno

    def visit_alias(self, node: ast.alias) -> None:
        self.lines[node.asname or node.name.partition(".")[0]] = node.lineno


def read_shapes(tree: ast.Module, origin: str) -> Shapes:
    """The module's `SHAPES`, which must be a literal; empty when there is none. Raises UsageError."""
    for target, value in reversed(_assignments(tree)):
        if target == "SHAPES":
            try:
                shapes = ast.literal_eval(value)
            except ValueError as error:
                raise UsageError(f"{origin}:{value.lineno}: SHAPES is not a literal dictionary") from error
            if fault := shapes_fault(shapes):
                raise UsageError(f"{origin}:{value.lineno}: {fault}")
            return dict(shapes)
    return {}


def shapes_fault(shapes: object) -> str | None:
    """Say what keeps `shapes` from being {label: {NAME: positive integer}}, or None."""
    if not isinstance(shapes, Mapping):
        return f"SHAPES is of type {type(shapes).__name__}, not a dictionary {{label: {{NAME: number}}}}"
    for label, numbers in shapes.items():
        if not isinstance(label, str):
            return f"SHAPES has the label {label!r}, which is not a string"
        if not isinstance(numbers, Mapping):
            return f"SHAPES[{label!r}] is of type {type(numbers).__name__}, not a dictionary {{NAME: number}}"
        for name, number in numbers.items():
            if not isinstance(name, str) or type(number) is not int or number < 1:
                return f"SHAPES[{label!r}] maps {name!r} to {number!r}, not a name to a positive integer"
    return None


def with_shape(source: str, origin: str, label: str) -> str:
    """`source` with each number of `SHAPES[label]` written into its top-level `NAME = <integer>` assignments.

    Line numbers stay as they are, and so does everything derived from the numbers. Raises UsageError.
    """
    tree = parse(source, origin)
    shapes = read_shapes(tree, origin)
    if label not in shapes:
        known = f"known: {', '.join(sorted(shapes))}" if shapes else "the file defines no SHAPES"
        raise UsageError(f"{origin}: no shape {label!r}; {known}")
    literals: dict[str, list[ast.Constant]] = {}
    for target, value in _assignments(tree):
        if isinstance(value, ast.Constant) and type(value.value) is int:
            literals.setdefault(target, []).append(value)
    edits = []
    for name, number in shapes[label].items():
        if name not in literals:
            raise UsageError(
                f"{origin}:{bindings(tree)['SHAPES']}: SHAPES[{label!r}] sets {name}, but the file has no top-level "
                f"`{name} = <integer>`; known shapes: {', '.join(sorted(shapes))}"
            )
        edits += [(literal, number) for literal in literals[name]]
    return _replace(source, edits)


def _assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Top-level `name = value` and `name: type = value`, in order."""
    found: list[tuple[str, ast.expr]] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            found += [(t.id, statement.value) for t in statement.targets if isinstance(t, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
            found.append((statement.target.id, statement.value))
    return found


def _replace(source: str, edits: list[tuple[ast.Constant, int]]) -> str:
    # ast counts columns in UTF-8 bytes.
    lines = source.encode().split(b"\n")
    for literal, number in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        line = lines[literal.lineno - 1]
        lines[literal.lineno - 1] = line[: literal.col_offset] + str(number).encode() + line[literal.end_col_offset :]
    return b"\n".join(lines).decode()
