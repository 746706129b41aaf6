"""A fused kernel's mathematics as a few lines of text, for the docstring of what is emitted."""

from __future__ import annotations

from kernelwright.stages.generate.ir import FusedKernel, Op, Operand, Reduce

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
_LONG = 90


def mathematics(kernel: FusedKernel) -> list[str]:
    """One `name = formula` line for each stored value, each reduction, and each value that is used more than once."""
    uses: dict[str, int] = {}
    for line in kernel.body:
        for operand in line.args if isinstance(line, Op) else (line.arg,):
            if isinstance(operand, str):
                uses[operand] = uses.get(operand, 0) + 1
    targets = {store.value: store.target for store in kernel.stores}
    text = {load.name: load.source for load in kernel.loads}
    lines: list[str] = []
    for line in kernel.body:
        formula = _formula(line, text)
        plain = isinstance(line, Op) and uses.get(line.name, 0) == 1 and line.name not in targets
        if plain and len(formula) < _LONG:
            text[line.name] = formula
            continue
        name = targets.get(line.name, line.name)
        lines.append(f"{name} = {_bare(formula)}")
        text[line.name] = name
    stored = {line.name for line in kernel.body}
    lines += [f"{target} = {text[value]}" for value, target in targets.items() if value not in stored]
    return lines


def _formula(line: Op | Reduce, text: dict[str, str]) -> str:
    def show(operand: Operand) -> str:
        return (
            text[operand]
            if isinstance(operand, str)
            else f"{operand:.6g}"
            if isinstance(operand, float)
            else str(operand)
        )

    if isinstance(line, Reduce):
        return f"{line.fn} over the row of {_bare(text[line.arg])}"
    if line.fn in _INFIX:
        return f"({show(line.args[0])} {_INFIX[line.fn]} {show(line.args[1])})"
    return f"{line.fn}({', '.join(_bare(show(a)) for a in line.args)})"


def _bare(formula: str) -> str:
    """The formula without the one pair of parentheses around all of it."""
    if not (formula.startswith("(") and formula.endswith(")")):
        return formula
    depth = 0
    for position, letter in enumerate(formula):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position < len(formula) - 1:
            return formula
    return formula[1:-1]
