"""One walk over a source: every call, assignment, product and handler, with its line and what encloses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from kernelwright.stages.static.names import Names


@dataclass(frozen=True)
class Place:
    """Where something stands."""

    line: int
    functions: tuple[str, ...]
    """Names of the functions around it, outermost first; empty at the module's level and in a class's body."""
    handler: int | None
    """Line of the `except` block around it that runs when the module is called, not when it is imported."""


@dataclass(frozen=True)
class Call:
    """A call, with the dotted name of what is called; empty where that is no plain name."""

    name: str
    method: str
    """Last part of the name, also where the receiver is an expression: `sum` for `(x + y).sum()`."""
    node: cst.Call
    place: Place


@dataclass(frozen=True)
class Assignment:
    """An assignment to one target: its dotted name (the container's, for `a.b[c]`), and whether an item is set."""

    name: str
    item: bool
    value: cst.BaseExpression | None
    place: Place


@dataclass
class Sites:
    """Everything that the rules look at."""

    names: Names
    calls: list[Call] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    products: list[Place] = field(default_factory=list)
    """Uses of `@` as an operator."""
    functions: list[tuple[cst.FunctionDef, Place]] = field(default_factory=list)
    handlers: list[tuple[cst.ExceptHandler, Place]] = field(default_factory=list)
    globals: list[Place] = field(default_factory=list)
    attributes: list[tuple[str, Place]] = field(default_factory=list)
    """Dotted names that are read without being called, at their outermost attribute."""
    strings: list[tuple[str, Place]] = field(default_factory=list)
    """Strings that are values; docstrings and other bare strings are not among them."""


def collect(module: cst.Module) -> Sites:
    """Walk over a parsed source."""
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    walk = _Walk(Sites(Names(module)))
    wrapper.visit(walk)
    return walk.sites


class _Walk(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        self.sites = sites
        self.functions: list[str] = []
        self.handlers: list[int] = []

    def _place(self, node: cst.CSTNode) -> Place:
        line = self.get_metadata(PositionProvider, node).start.line
        return Place(line, tuple(self.functions), self.handlers[-1] if self.handlers and self.functions else None)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.sites.functions.append((node, self._place(node.name)))
        self.functions.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.functions.pop()

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        place = self._place(node)
        self.sites.handlers.append((node, place))
        self.handlers.append(place.line)

    def leave_ExceptHandler(self, original_node: cst.ExceptHandler) -> None:
        self.handlers.pop()

    def visit_Call(self, node: cst.Call) -> None:
        name = self.sites.names.dotted(node.func)
        method = name.rpartition(".")[2]
        if not name and isinstance(node.func, cst.Attribute):
            method = node.func.attr.value
        self.sites.calls.append(Call(name, method, node, self._place(node)))

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assigned(target.target, node.value, node)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._assigned(node.target, node.value, node)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._assigned(node.target, node.value, node)
        if isinstance(node.operator, cst.MatrixMultiplyAssign):
            self.sites.products.append(self._place(node))

    def _assigned(self, target: cst.BaseExpression, value: cst.BaseExpression | None, node: cst.CSTNode) -> None:
        if isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._assigned(element.value, None, node)
            return
        item = isinstance(target, cst.Subscript)
        inner = target.value if isinstance(target, cst.Subscript) else target
        name = self.sites.names.dotted(inner)
        if isinstance(inner, cst.Name):
            # A name that is bound here is itself, whatever it was an alias of.
            name = self.sites.names.imports.get(inner.value, inner.value) if item else inner.value
        self.sites.assignments.append(Assignment(name, item, value, self._place(node)))

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        if isinstance(node.operator, cst.MatrixMultiply):
            self.sites.products.append(self._place(node))

    def visit_Global(self, node: cst.Global) -> None:
        self.sites.globals.append(self._place(node))

    def visit_Attribute(self, node: cst.Attribute) -> None:
        name = self.sites.names.dotted(node)
        if name:
            self.sites.attributes.append((name, self._place(node)))

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        self._string(node)

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self._string(node)

    def _string(self, node: cst.BaseExpression) -> None:
        text = self.sites.names.text(node)
        if text is not None:
            self.sites.strings.append((text, self._place(node)))

    def visit_Expr(self, node: cst.Expr) -> bool:
        return not isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)


def keywords(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Keyword arguments by name."""
    return {a.keyword.value: a.value for a in call.args if a.keyword is not None}


def lines(places: Sequence[Place]) -> list[int]:
    """The lines of some places, each once, in order."""
    return sorted({p.line for p in places})
