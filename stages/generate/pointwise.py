"""Lowering rules for arithmetic, comparisons, logic and conversions."""

from __future__ import annotations

import math
from typing import Any

from kernelwright.stages.generate.body import Body
from kernelwright.stages.generate.ir import Operand
from kernelwright.stages.generate.rules import (
    Specs,
    argument,
    float_result,
    only_bool,
    operand_dtypes,
    pointwise,
    short,
)
from kernelwright.stages.generate.scalar import COMPARISONS, is_float
from kernelwright.stages.translate.graph import Arg, Node

CONVERSIONS = ("to", "_to_copy", "type_as", "clone", "contiguous")
"""Operators that copy, perhaps to another dtype or layout."""


@pointwise("neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p")
@pointwise("sin", "cos", "tanh", "erf", "sigmoid")
def _unary(body: Body, node: Node) -> Operand:
    return body.op(short(node), body.value(node.args[0], body.dtype))


@pointwise("floor", "ceil", "trunc", "round", when=lambda node, _: not argument(node, 1, "decimals", 0))
def _rounded(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    return body.op(short(node), x) if is_float(body.dtype) else x


@pointwise(*COMPARISONS)
def _comparison(body: Body, node: Node) -> Operand:
    dtype = body.common_dtype(node.args[:2])
    return body.op(short(node), body.value(node.args[0], dtype), body.value(node.args[1], dtype), dtype="bool")


@pointwise("add", "sub")
def _add(body: Body, node: Node) -> Operand:
    right = _scaled(body, node.args[1], argument(node, 2, "alpha", 1))
    return body.op(short(node), body.value(node.args[0], body.dtype), right)


@pointwise("rsub")
def _rsub(body: Body, node: Node) -> Operand:
    left = _scaled(body, node.args[0], argument(node, 2, "alpha", 1))
    return body.op("sub", body.value(node.args[1], body.dtype), left)


def _scaled(body: Body, value: Arg, scale: Any) -> Operand:
    operand = body.value(value, body.dtype)
    return operand if scale == 1 else body.op("mul", operand, body.value(scale, body.dtype))


@pointwise("mul", "maximum", "minimum")
def _binary(body: Body, node: Node) -> Operand:
    return body.op(short(node), *(body.value(a, body.dtype) for a in node.args[:2]))


def _divides_exactly(node: Node, specs: Specs) -> bool:
    """Rounding down needs the remainder too: 1 / 0.1 is 10 in floats, but 0.1 goes into 1 only nine times."""
    return argument(node, 2, "rounding_mode") in (None, "trunc") and float_result(node, specs)


@pointwise("div", "true_divide", when=_divides_exactly)
def _div(body: Body, node: Node) -> Operand:
    quotient = body.op("div", *(body.value(a, body.dtype) for a in node.args[:2]))
    return quotient if argument(node, 2, "rounding_mode") is None else body.op("trunc", quotient)


def _power_is_exact(node: Node, specs: Specs) -> bool:
    return float_result(node, specs) or node.args[1] in (2, 3)


@pointwise("pow", when=_power_is_exact)
def _pow(body: Body, node: Node) -> Operand:
    x, power = body.value(node.args[0], body.dtype), node.args[1]
    match power:
        case 2:
            return body.op("mul", x, x)
        case 3:
            return body.op("mul", body.op("mul", x, x), x)
        case 0.5:
            return body.op("sqrt", x)
        case -0.5:
            return body.op("rsqrt", x)
    return body.op("pow", x, body.value(power, body.dtype))


@pointwise("square")
def _square(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    return body.op("mul", x, x)


_CLAMPS: dict[str, tuple[Any, Any]] = {"clamp": (None, None), "clip": (None, None), "hardtanh": (-1.0, 1.0)}


@pointwise(*_CLAMPS)
def _clamp(body: Body, node: Node) -> Operand:
    lowest, highest = _CLAMPS[short(node)]
    suffix = "_val" if short(node) == "hardtanh" else ""
    low, high = argument(node, 1, f"min{suffix}", lowest), argument(node, 2, f"max{suffix}", highest)
    return clamped(body, body.value(node.args[0], body.dtype), low, high)


@pointwise("clamp_min", "clamp_max")
def _clamp_one_side(body: Body, node: Node) -> Operand:
    fn = "maximum" if short(node) == "clamp_min" else "minimum"
    return body.op(fn, *(body.value(a, body.dtype) for a in node.args[:2]))


def clamped(body: Body, x: Operand, low: Arg, high: Arg) -> Operand:
    """The value between two bounds, either of which may be None."""
    if low is not None:
        x = body.op("maximum", x, body.value(low, body.dtype))
    if high is not None:
        x = body.op("minimum", x, body.value(high, body.dtype))
    return x


@pointwise("where", when=lambda node, _: len(node.args) == 3)
def _where(body: Body, node: Node) -> Operand:
    condition, *values = node.args
    return body.op("where", body.value(condition, "bool"), *(body.value(v, body.dtype) for v in values))


@pointwise("masked_fill")
def _masked_fill(body: Body, node: Node) -> Operand:
    x, mask, fill = node.args
    return body.op("where", body.value(mask, "bool"), body.value(fill, body.dtype), body.value(x, body.dtype))


@pointwise("lerp")
def _lerp(body: Body, node: Node) -> Operand:
    """start + weight (end - start), counted from the nearer end, so that weight 1 gives `end` to the last digit."""
    start, end, weight = (body.value(a, body.dtype) for a in node.args)
    difference = body.op("sub", end, start)
    from_start = body.op("add", start, body.op("mul", weight, difference))
    if isinstance(weight, float) and abs(weight) < 0.5:
        return from_start
    rest = 1.0 - weight if isinstance(weight, float) else body.op("sub", 1.0, weight)
    from_end = body.op("sub", end, body.op("mul", difference, rest))
    if isinstance(weight, float):
        return from_end
    return body.op("where", body.op("lt", body.op("abs", weight), 0.5, dtype="bool"), from_start, from_end)


@pointwise("addcmul", "addcdiv")
def _addc(body: Body, node: Node) -> Operand:
    start, b = (body.value(node.args[i], body.dtype) for i in (0, 2))
    a = _scaled(body, node.args[1], argument(node, 3, "value", 1))
    return body.op("add", start, body.op("mul" if short(node) == "addcmul" else "div", a, b))


@pointwise("logical_and", "logical_or", "logical_xor")
@pointwise("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__", when=only_bool)
def _logical(body: Body, node: Node) -> Operand:
    left, right = (body.value(a, "bool") for a in node.args)
    kind = short(node).strip("_").split("_")[-1]
    return body.op("ne" if kind == "xor" else f"logical_{kind}", left, right, dtype="bool")


@pointwise("logical_not")
@pointwise("bitwise_not", when=only_bool)
def _logical_not(body: Body, node: Node) -> Operand:
    return body.op("logical_not", body.value(node.args[0], "bool"), dtype="bool")


@pointwise("isnan", "isinf")
def _classify(body: Body, node: Node) -> Operand:
    return body.op(short(node), body.value(node.args[0], body.common_dtype(node.args[:1])), dtype="bool")


@pointwise("isfinite", when=lambda node, specs: all(map(is_float, operand_dtypes(node, specs))))
def _isfinite(body: Body, node: Node) -> Operand:
    dtype = body.common_dtype(node.args[:1])
    # False for a nan too.
    return body.op("lt", body.op("abs", body.value(node.args[0], dtype), dtype=dtype), math.inf, dtype="bool")


@pointwise(*CONVERSIONS)
def _convert(body: Body, node: Node) -> Operand:
    return body.value(node.args[0], body.dtype)
