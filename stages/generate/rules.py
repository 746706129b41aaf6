"""The table of lowering rules: how each aten operator is written with scalar functions and row reductions.

A rule writes one operator with a `Body`. A new operator is one more function in `pointwise.py`, `activations.py` or
`rowwise.py`; `lowering.py` gathers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.stages.generate.body import Body
from kernelwright.stages.generate.ir import Operand
from kernelwright.stages.generate.scalar import is_float
from kernelwright.stages.translate.graph import Node, Ref, TensorSpec

Rule = Callable[[Body, Node], Operand]
Specs = Mapping[str, TensorSpec]
Condition = Callable[[Node, Specs], bool]

POINTWISE: dict[str, Rule] = {}
"""By operator without overload (`aten.add`): output and operands broadcast against each other."""
ROWWISE: dict[str, Rule] = {}
"""Operators that reduce the trailing dimensions, or normalise over them."""
CONDITIONS: dict[str, Condition] = {}
"""Operators that are lowered only when this holds of the node. The others always are."""


def pointwise(*names: str, when: Condition | None = None) -> Callable[[Rule], Rule]:
    """Register a rule for these operators, in place (`add_`) or not."""
    return _registrar(POINTWISE, names, when)


def rowwise(*names: str, when: Condition | None = None) -> Callable[[Rule], Rule]:
    """Register a rule for these operators."""
    return _registrar(ROWWISE, names, when)


def _registrar(table: dict[str, Rule], names: tuple[str, ...], when: Condition | None) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            table[f"aten.{name}"] = rule
            if when is not None:
                CONDITIONS[f"aten.{name}"] = when
        return rule

    return register


def covers(node: Node, specs: Specs) -> bool:
    """Whether some rule writes this node with its arguments and dtypes."""
    name = base(node.op)
    condition = CONDITIONS.get(name)
    return (name in POINTWISE or name in ROWWISE) and (condition is None or condition(node, specs))


def base(op: str) -> str:
    """`aten.add` for `aten.add_.Tensor`: graphs are functional, so an in-place name means the plain function."""
    name = op.rsplit(".", 1)[0]
    return name if name.endswith("__") else name.removesuffix("_")


def short(node: Node) -> str:
    """The operator's bare name: `add`."""
    return base(node.op).removeprefix("aten.")


def argument(node: Node, index: int, name: str, default: Any = None) -> Any:
    """An argument by position or by name."""
    if index < len(node.args):
        return node.args[index]
    return dict(node.kwargs).get(name, default)


def operand_dtypes(node: Node, specs: Specs) -> set[str]:
    """Dtypes of the tensors that the node reads."""
    return {specs[name].dtype for name in node.refs() if name in specs}


def only_bool(node: Node, specs: Specs) -> bool:
    """Bitwise operators are logical ones on booleans; on integers they are left to torch."""
    return operand_dtypes(node, specs) == {"bool"} and all(isinstance(a, Ref) for a in node.args)


def float_result(node: Node, specs: Specs) -> bool:
    """Whether the node computes in a floating-point dtype."""
    return isinstance(node.output, TensorSpec) and is_float(node.output.dtype)
