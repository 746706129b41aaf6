"""How dtypes, literals and scalar functions are written in C++."""

from __future__ import annotations

import math

from kernelwright.stages.generate.ir import Op, Operand
from kernelwright.stages.generate.scalar import is_float

TYPES = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t", "bool": "bool"}
"""What this back end can load, compute with and store."""

OWN_FLOAT = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf")
"""Functions that `cpp_math` has for float32."""

EXPRESSIONS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "std::abs({0})",
    "sign": "static_cast<{t}>(({0} > 0) - ({0} < 0))",
    "reciprocal": "{one} / {0}",
    "sqrt": "std::sqrt({0})",
    "rsqrt": "{one} / std::sqrt({0})",
    "sigmoid": "{one} / ({one} + std::exp(-{0}))",
    "maximum": "(({0} > {1}) | ({0} != {0}) ? {0} : {1})",
    "minimum": "(({0} < {1}) | ({0} != {0}) ? {0} : {1})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "isnan": "{0} != {0}",
    "isinf": "std::abs({0}) == INFINITY",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "!{0}",
    "where": "{0} ? {1} : {2}",
    "round": "std::nearbyint({0})",
}
"""Everything else is the function of the same name in <cmath>."""


def c_type(dtype: str) -> str:
    """The C++ type of a torch dtype."""
    return TYPES[dtype]


def literal(value: bool | int | float, dtype: str) -> str:
    """A number as a C++ literal of the dtype."""
    if dtype == "bool":
        return "true" if value else "false"
    if not is_float(dtype):
        return f"INT64_C({int(value)})" if dtype == "int64" else str(int(value))
    suffix = "f" if dtype == "float32" else ""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value)!r}{suffix}"


def expression(op: Op, names: dict[str, str], dtypes: dict[str, str]) -> str:
    """One operation as a C++ expression over the C++ names of its operands."""
    kind = next((dtypes[a] for a in op.args if isinstance(a, str) and dtypes[a] != "bool"), op.dtype)

    def show(operand: Operand, dtype: str) -> str:
        return names[operand] if isinstance(operand, str) else literal(operand, dtype)

    if op.fn == "cast":
        return _cast(op, names, dtypes)
    if op.fn == "where":
        condition, *values = op.args
        operands = [show(condition, "bool"), *(show(v, op.dtype) for v in values)]
    else:
        operands = [show(a, kind) for a in op.args]
    form = EXPRESSIONS.get(op.fn, f"std::{op.fn}({', '.join(f'{{{i}}}' for i in range(len(operands)))})")
    if op.fn in OWN_FLOAT and op.dtype == "float32":
        form = f"{op.fn}_({{0}})"
    return form.format(*operands, t=c_type(op.dtype), one=literal(1, op.dtype))


def _cast(op: Op, names: dict[str, str], dtypes: dict[str, str]) -> str:
    (operand,) = op.args
    assert isinstance(operand, str)
    if op.dtype == "bool":
        return f"{names[operand]} != {literal(0, dtypes[operand])}"
    return f"static_cast<{c_type(op.dtype)}>({names[operand]})"
