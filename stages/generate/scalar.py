"""The scalar functions that every emitter must be able to write, with how many operands each takes.

Operands and result have the same dtype unless it says otherwise; halves are computed in float32. All of them treat nan,
inf and signed zeros as torch's elementwise operators do.
"""

from __future__ import annotations

FUNCTIONS: dict[str, int] = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "neg": 1,
    "abs": 1,
    "sign": 1,
    "reciprocal": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "exp": 1,
    "exp2": 1,
    "expm1": 1,
    "log": 1,
    "log2": 1,
    "log10": 1,
    "log1p": 1,
    "sin": 1,
    "cos": 1,
    "tanh": 1,
    "erf": 1,
    "sigmoid": 1,
    "pow": 2,
    "floor": 1,
    "ceil": 1,
    "trunc": 1,
    "round": 1,  # half to even
    "maximum": 2,  # a nan wins
    "minimum": 2,
    "eq": 2,  # comparisons give bool
    "ne": 2,
    "lt": 2,
    "le": 2,
    "gt": 2,
    "ge": 2,
    "isnan": 1,
    "isinf": 1,
    "logical_and": 2,  # operands and result are bool
    "logical_or": 2,
    "logical_not": 1,
    "where": 3,  # the first operand is bool
    "cast": 1,  # to the result's dtype; to bool: not equal to zero; from float to integer: towards zero
}

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin")
"""Reductions over a row. `max` and `min` give nan when the row holds one; argmax and argmin its first position."""

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def is_float(dtype: str) -> bool:
    """Whether the dtype is a floating-point one."""
    return dtype in ("float16", "bfloat16", "float32", "float64")


def kind(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats: a value of a lower kind joins one of a higher in the latter's dtype."""
    return 2 if is_float(dtype) else int(dtype != "bool")


def promote(a: str, b: str) -> str:
    """The dtype in which torch computes with two tensors of these dtypes (both with dimensions).

    https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    order = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    pair = {a, b}
    if len(pair) == 1:
        return a
    if pair == {"float16", "bfloat16"}:
        return "float32"
    if pair == {"uint8", "int8"}:
        return "int16"
    return max(pair, key=order.index)
