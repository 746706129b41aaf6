"""How dtypes, literals and scalar functions are written in C++."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelwright.stages.generate.ir import Op
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

RESERVED = {
    *(
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
    ),
    *("default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for"),
    *("friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "operator"),
    *("or", "private", "protected", "public", "register", "return", "short", "signed", "sizeof", "static", "struct"),
    *("switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned"),
    *("using", "virtual", "void", "volatile", "while", "xor", "std", "NAN", "INFINITY", "SMALL", "BLOCK", "LENGTH"),
    *("count", "rows", "row", "begin", "length", "j", "lane", "other", "tie", "above", "below", "stream", "from_bits"),
}
"""Words that a tensor may not be called in C++: the language's, and the emitted code's own."""


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


def expression(op: Op, dtypes: Mapping[str, str]) -> str:
    """One operation as a C++ expression over its operands, which are called as in the body; `dtypes` has theirs."""
    if op.fn == "cast":
        return _cast(op, dtypes)
    # Literals are of the other operands' dtype; a comparison's own is bool.
    kind = next((dtypes[a] for a in op.args if isinstance(a, str) and dtypes[a] != "bool"), op.dtype)
    kinds = ["bool", op.dtype, op.dtype] if op.fn == "where" else [kind] * len(op.args)
    operands = [a if isinstance(a, str) else literal(a, k) for a, k in zip(op.args, kinds, strict=True)]
    form = EXPRESSIONS.get(op.fn, f"std::{op.fn}({', '.join(f'{{{i}}}' for i in range(len(operands)))})")
    if op.fn in OWN_FLOAT and op.dtype == "float32":
        form = f"{op.fn}_({{0}})"
    return form.format(*operands, t=c_type(op.dtype), one=literal(1, op.dtype))


def _cast(op: Op, dtypes: Mapping[str, str]) -> str:
    (operand,) = op.args
    assert isinstance(operand, str)
    if op.dtype == "bool":
        return f"{operand} != {literal(0, dtypes[operand])}"
    return f"static_cast<{c_type(op.dtype)}>({operand})"
