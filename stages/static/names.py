"""What a name means: imports followed, and strings folded that are put together: `getattr(torch, "mat" + "mul")`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst


class Names:
    """Resolves expressions of one module."""

    def __init__(self, module: cst.Module) -> None:
        collector = _Collector()
        module.visit(collector)
        self.imports: Mapping[str, str] = collector.imports
        self.aliases: Mapping[str, cst.BaseExpression] = collector.aliases

    def dotted(self, node: cst.CSTNode, depth: int = 8) -> str:
        """`torch.nn.functional.gelu` for `F.gelu`; empty for what is no plain name. `depth` ends chains of aliases."""
        if isinstance(node, cst.Name):
            if node.value in self.imports:
                return self.imports[node.value]
            alias = self.aliases.get(node.value)
            meant = self.dotted(alias, depth - 1) if alias is not None and depth else ""
            # `mm = torch.mm` is followed; `x = f(y)` is not.
            return meant if meant.startswith("torch.") else node.value
        if isinstance(node, cst.Attribute):
            base = self.dotted(node.value, depth)
            return f"{base}.{node.attr.value}" if base else ""
        if isinstance(node, cst.Call) and self.dotted(node.func, depth) == "getattr" and len(node.args) >= 2:
            base, name = self.dotted(node.args[0].value, depth), self.text(node.args[1].value)
            return f"{base}.{name}" if base and name else ""
        if isinstance(node, cst.Call) and self.dotted(node.func, depth) in ("importlib.import_module", "__import__"):
            return (self.text(node.args[0].value) or "") if node.args else ""
        return ""

    def text(self, node: cst.BaseExpression, depth: int = 16) -> str | None:
        """The string that an expression of constants gives, or None."""
        if depth == 0:
            return None
        if isinstance(node, cst.SimpleString):
            value = ast.literal_eval(node.value)
            return value if isinstance(value, str) else None
        if isinstance(node, cst.ConcatenatedString):
            return _joined([self.text(node.left, depth - 1), self.text(node.right, depth - 1)])
        if isinstance(node, cst.FormattedString):
            return _joined([self._part(part, depth) for part in node.parts])
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            return _joined([self.text(node.left, depth - 1), self.text(node.right, depth - 1)])
        if isinstance(node, cst.Name) and node.value in self.aliases:
            return self.text(self.aliases[node.value], depth - 1)
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            return self._sliced(node, depth)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "join":
            return self._join(node, depth)
        return None

    def _part(self, part: cst.BaseFormattedStringContent, depth: int) -> str | None:
        if isinstance(part, cst.FormattedStringText):
            return part.value
        assert isinstance(part, cst.FormattedStringExpression)
        return self.text(part.expression, depth - 1)

    def _sliced(self, node: cst.Subscript, depth: int) -> str | None:
        """`"lumtam"[::-1]`."""
        text, piece = self.text(node.value, depth - 1), node.slice[0].slice
        if text is None or not isinstance(piece, cst.Slice):
            return None
        try:
            bounds = [None if b is None else int(_code(b)) for b in (piece.lower, piece.upper, piece.step)]
        except ValueError:
            return None
        return text[slice(*bounds)] if bounds[2] != 0 else None

    def _join(self, node: cst.Call, depth: int) -> str | None:
        assert isinstance(node.func, cst.Attribute)
        glue = self.text(node.func.value, depth - 1)
        if glue is None or len(node.args) != 1 or not isinstance(node.args[0].value, cst.List | cst.Tuple):
            return None
        parts = [self.text(e.value, depth - 1) for e in node.args[0].value.elements]
        return glue.join(p for p in parts if p is not None) if None not in parts else None


class _Collector(cst.CSTVisitor):
    """Imports anywhere, and names that are bound once, to a plain expression."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.aliases: dict[str, cst.BaseExpression] = {}
        self._bound: set[str] = set()

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = _code(alias.name)
            local = alias.asname
            if local is not None and isinstance(local.name, cst.Name):
                self.imports[local.name.value] = name
            else:
                self.imports[name.partition(".")[0]] = name.partition(".")[0]

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        module = _code(node.module) if node.module is not None else ""
        for alias in node.names:
            name = _code(alias.name)
            local = alias.asname.name if alias.asname is not None else alias.name
            if isinstance(local, cst.Name):
                self.imports[local.value] = f"{module}.{name}"

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            if isinstance(target.target, cst.Name):
                name = target.target.value
                if name in self._bound:
                    self.aliases.pop(name, None)
                else:
                    self.aliases[name] = node.value
                self._bound.add(name)


def _code(node: cst.CSTNode) -> str:
    return cst.Module(body=[]).code_for_node(node)


def _joined(parts: list[str | None]) -> str | None:
    return None if None in parts else "".join(p for p in parts if p is not None)
