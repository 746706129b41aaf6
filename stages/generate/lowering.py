"""From aten operators to scalar functions and row reductions.

Each entry of `POINTWISE` and `ROWWISE` writes one operator with a `Body`. A new operator is one more function here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kernelwright.stages.generate.body import Body
from kernelwright.stages.generate.ir import Operand
from kernelwright.stages.generate.scalar import COMPARISONS, is_float
from kernelwright.stages.translate.graph import Arg, Node, Ref

Rule = Callable[[Body, Node], Operand]

POINTWISE: dict[str, Rule] = {}
"""By operator without overload (`aten.add`): output and operands broadcast against each other."""
ROWWISE: dict[str, Rule] = {}
"""Operators that reduce the trailing dimensions, or normalise over them."""


def pointwise(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these operators, in place (`add_`) or not."""

    def register(rule: Rule) -> Rule:
        POINTWISE.update({f"aten.{name}": rule for name in names})
        return rule

    return register


def rowwise(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these operators."""

    def register(rule: Rule) -> Rule:
        ROWWISE.update({f"aten.{name}": rule for name in names})
        return rule

    return register


def base(op: str) -> str:
    """`aten.add` for `aten.add_.Tensor`: graphs are functional, so an in-place name means the plain function."""
    name = op.rsplit(".", 1)[0]
    return name.removesuffix("_")


def argument(node: Node, index: int, name: str, default: Any = None) -> Any:
    """An argument by position or by name."""
    if index < len(node.args):
        return node.args[index]
    return dict(node.kwargs).get(name, default)


# Functions of one operand that an emitter has under the same name.
for _name in (
    *("neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tanh", "erf", "sigmoid", "floor", "ceil", "trunc"),
):

    def _unary(body: Body, node: Node, fn: str = _name) -> Operand:
        return body.op(fn, body.value(node.args[0], body.dtype), dtype=body.dtype)

    pointwise(_name)(_unary)


@pointwise("round")
def _round(body: Body, node: Node) -> Operand:
    return body.op("round", body.value(node.args[0], body.dtype), dtype=body.dtype)


for _name in COMPARISONS:

    def _comparison(body: Body, node: Node, fn: str = _name) -> Operand:
        dtype = body.common_dtype(node.args[:2])
        return body.op(fn, body.value(node.args[0], dtype), body.value(node.args[1], dtype), dtype="bool")

    pointwise(_name)(_comparison)


@pointwise("add", "sub")
def _add(body: Body, node: Node) -> Operand:
    fn = base(node.op).removeprefix("aten.")
    alpha = argument(node, 2, "alpha", 1)
    right = body.value(node.args[1], body.dtype)
    if alpha != 1:
        right = body.op("mul", right, body.value(alpha, body.dtype), dtype=body.dtype)
    return body.op(fn, body.value(node.args[0], body.dtype), right, dtype=body.dtype)


@pointwise("rsub")
def _rsub(body: Body, node: Node) -> Operand:
    alpha = argument(node, 2, "alpha", 1)
    left = body.value(node.args[0], body.dtype)
    if alpha != 1:
        left = body.op("mul", left, body.value(alpha, body.dtype), dtype=body.dtype)
    return body.op("sub", body.value(node.args[1], body.dtype), left, dtype=body.dtype)


@pointwise("mul")
def _mul(body: Body, node: Node) -> Operand:
    return body.op("mul", *(body.value(a, body.dtype) for a in node.args[:2]), dtype=body.dtype)


@pointwise("div", "true_divide")
def _div(body: Body, node: Node) -> Operand:
    mode = argument(node, 2, "rounding_mode")
    quotient = body.op("div", *(body.value(a, body.dtype) for a in node.args[:2]), dtype=body.dtype)
    return quotient if mode is None else body.op(mode, quotient, dtype=body.dtype)


@pointwise("pow")
def _pow(body: Body, node: Node) -> Operand:
    power = node.args[1]
    x = body.value(node.args[0], body.dtype)
    if power == 2:
        return body.op("mul", x, x, dtype=body.dtype)
    if power == 3:
        return body.op("mul", body.op("mul", x, x, dtype=body.dtype), x, dtype=body.dtype)
    if power == 0.5:
        return body.op("sqrt", x, dtype=body.dtype)
    if power == -0.5:
        return body.op("rsqrt", x, dtype=body.dtype)
    return body.op("pow", x, body.value(power, body.dtype), dtype=body.dtype)


@pointwise("square")
def _square(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    return body.op("mul", x, x, dtype=body.dtype)


@pointwise("maximum", "minimum")
def _extremum(body: Body, node: Node) -> Operand:
    fn = base(node.op).removeprefix("aten.")
    return body.op(fn, *(body.value(a, body.dtype) for a in node.args[:2]), dtype=body.dtype)


@pointwise("relu")
def _relu(body: Body, node: Node) -> Operand:
    return body.op("maximum", body.value(node.args[0], body.dtype), _zero(body), dtype=body.dtype)


@pointwise("clamp", "clip", "hardtanh", "relu6", "clamp_min", "clamp_max")
def _clamp(body: Body, node: Node) -> Operand:
    name = base(node.op).removeprefix("aten.")
    x = body.value(node.args[0], body.dtype)
    defaults = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0)}.get(name, (None, None))
    low: Any = (
        None if name == "clamp_max" else argument(node, 1, "min_val" if name == "hardtanh" else "min", defaults[0])
    )
    high: Any = (
        argument(node, 1, "max")
        if name == "clamp_max"
        else None
        if name == "clamp_min"
        else argument(node, 2, "max_val" if name == "hardtanh" else "max", defaults[1])
    )
    return _clamped(body, x, low, high)


def _clamped(body: Body, x: Operand, low: Arg, high: Arg) -> Operand:
    if low is not None:
        x = body.op("maximum", x, body.value(low, body.dtype), dtype=body.dtype)
    if high is not None:
        x = body.op("minimum", x, body.value(high, body.dtype), dtype=body.dtype)
    return x


def _zero(body: Body) -> Operand:
    return 0.0 if is_float(body.dtype) else 0


@pointwise("leaky_relu")
def _leaky_relu(body: Body, node: Node) -> Operand:
    x, slope = body.value(node.args[0], body.dtype), float(argument(node, 1, "negative_slope", 0.01))
    return body.op(
        "where",
        body.op("gt", x, 0.0, dtype="bool"),
        x,
        body.op("mul", x, slope, dtype=body.dtype),
        dtype=body.dtype,
    )


@pointwise("elu", "selu", "celu")
def _elu(body: Body, node: Node) -> Operand:
    name = base(node.op).removeprefix("aten.")
    alpha, scale, inner = 1.0, 1.0, 1.0
    if name == "elu":
        alpha, scale, inner = (
            float(argument(node, i, n, 1)) for i, n in ((1, "alpha"), (2, "scale"), (3, "input_scale"))
        )
    elif name == "selu":
        # Klambauer et al., Self-Normalizing Neural Networks (2017).
        alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    else:
        alpha = float(argument(node, 1, "alpha", 1.0))
        inner = 1.0 / alpha
    x = body.value(node.args[0], body.dtype)
    scaled = x if inner == 1.0 else body.op("mul", x, inner, dtype=body.dtype)
    below = body.op("mul", body.op("expm1", scaled, dtype=body.dtype), alpha * scale, dtype=body.dtype)
    above = x if scale == 1.0 else body.op("mul", x, scale, dtype=body.dtype)
    return body.op("where", body.op("gt", x, 0.0, dtype="bool"), above, below, dtype=body.dtype)


@pointwise("gelu")
def _gelu(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    if argument(node, 1, "approximate", "none") == "tanh":
        # Hendrycks and Gimpel, Gaussian Error Linear Units (2016), section 2.
        cube = body.op("mul", body.op("mul", x, x, dtype=dtype), x, dtype=dtype)
        inner = body.op("add", x, body.op("mul", cube, 0.044715, dtype=dtype), dtype=dtype)
        gate = body.op("tanh", body.op("mul", inner, math.sqrt(2 / math.pi), dtype=dtype), dtype=dtype)
    else:
        gate = body.op("erf", body.op("mul", x, math.sqrt(0.5), dtype=dtype), dtype=dtype)
    half = body.op("mul", x, 0.5, dtype=dtype)
    return body.op("mul", half, body.op("add", gate, 1.0, dtype=dtype), dtype=dtype)


@pointwise("silu")
def _silu(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    # x / (1 + exp(-x)), as torch has it: x * sigmoid(x) would be nan at -inf too, but rounds once more.
    denominator = body.op(
        "add", body.op("exp", body.op("neg", x, dtype=body.dtype), dtype=body.dtype), 1.0, dtype=body.dtype
    )
    return body.op("div", x, denominator, dtype=body.dtype)


@pointwise("softplus")
def _softplus(body: Body, node: Node) -> Operand:
    beta, threshold = float(argument(node, 1, "beta", 1)), float(argument(node, 2, "threshold", 20))
    x = body.value(node.args[0], body.dtype)
    return _softplus_of(body, x, beta, threshold)


def _softplus_of(body: Body, x: Operand, beta: float, threshold: float) -> Operand:
    dtype = body.dtype
    scaled = x if beta == 1.0 else body.op("mul", x, beta, dtype=dtype)
    soft = body.op("log1p", body.op("exp", scaled, dtype=dtype), dtype=dtype)
    soft = soft if beta == 1.0 else body.op("div", soft, beta, dtype=dtype)
    return body.op("where", body.op("gt", scaled, threshold, dtype="bool"), x, soft, dtype=dtype)


@pointwise("mish")
def _mish(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    soft = body.op("log1p", body.op("exp", x, dtype=body.dtype), dtype=body.dtype)
    return body.op("mul", x, body.op("tanh", soft, dtype=body.dtype), dtype=body.dtype)


@pointwise("hardsigmoid", "hardswish")
def _hardsigmoid(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    gate = _clamped(body, body.op("add", x, 3.0, dtype=body.dtype), 0.0, 6.0)
    if base(node.op) == "aten.hardswish":
        gate = body.op("mul", x, gate, dtype=body.dtype)
    return body.op("div", gate, 6.0, dtype=body.dtype)


@pointwise("log_sigmoid")
def _log_sigmoid(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    tail = body.op("neg", body.op("abs", x, dtype=dtype), dtype=dtype)
    soft = body.op("log1p", body.op("exp", tail, dtype=dtype), dtype=dtype)
    return body.op("sub", body.op("minimum", x, 0.0, dtype=dtype), soft, dtype=dtype)


@pointwise("softsign")
def _softsign(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    return body.op("div", x, body.op("add", body.op("abs", x, dtype=dtype), 1.0, dtype=dtype), dtype=dtype)


@pointwise("where")
def _where(body: Body, node: Node) -> Operand:
    condition, *values = node.args
    return body.op(
        "where", body.value(condition, "bool"), *(body.value(v, body.dtype) for v in values), dtype=body.dtype
    )


@pointwise("masked_fill")
def _masked_fill(body: Body, node: Node) -> Operand:
    x, mask, fill = node.args
    return body.op(
        "where", body.value(mask, "bool"), body.value(fill, body.dtype), body.value(x, body.dtype), dtype=body.dtype
    )


@pointwise("lerp")
def _lerp(body: Body, node: Node) -> Operand:
    start, end, weight = (body.value(a, body.dtype) for a in node.args)
    difference = body.op("sub", end, start, dtype=body.dtype)
    return body.op("add", start, body.op("mul", weight, difference, dtype=body.dtype), dtype=body.dtype)


@pointwise("addcmul", "addcdiv")
def _addc(body: Body, node: Node) -> Operand:
    fn = "mul" if base(node.op) == "aten.addcmul" else "div"
    start, a, b = (body.value(v, body.dtype) for v in node.args[:3])
    term = body.op(fn, a, b, dtype=body.dtype)
    scale = argument(node, 3, "value", 1)
    if scale != 1:
        term = body.op("mul", term, body.value(scale, body.dtype), dtype=body.dtype)
    return body.op("add", start, term, dtype=body.dtype)


@pointwise("logical_and", "logical_or", "bitwise_and", "bitwise_or")
def _logical(body: Body, node: Node) -> Operand:
    fn = base(node.op).removeprefix("aten.").replace("bitwise", "logical")
    return body.op(fn, *(body.value(a, "bool") for a in node.args), dtype="bool")


@pointwise("logical_not", "bitwise_not")
def _logical_not(body: Body, node: Node) -> Operand:
    return body.op("logical_not", body.value(node.args[0], "bool"), dtype="bool")


@pointwise("isnan", "isinf")
def _classify(body: Body, node: Node) -> Operand:
    fn = base(node.op).removeprefix("aten.")
    dtype = body.common_dtype(node.args[:1])
    return body.op(fn, body.value(node.args[0], dtype), dtype="bool")


@pointwise("to", "_to_copy", "type_as", "float", "clone", "contiguous", "alias", "detach")
def _convert(body: Body, node: Node) -> Operand:
    return body.value(node.args[0], body.dtype)


# Reductions and normalisations over a row


@rowwise("sum", "prod", "amax", "amin", "argmax", "argmin", "mean")
def _reduce(body: Body, node: Node) -> Operand:
    name = base(node.op).removeprefix("aten.")
    fn = {"amax": "max", "amin": "min", "mean": "sum"}.get(name, name)
    dtype = body.common_dtype(node.args[:1]) if fn.startswith("arg") else body.dtype
    reduced = body.reduce(fn, body.value(node.args[0], dtype), dtype=body.dtype)
    return body.op("div", reduced, float(body.row_length), dtype=body.dtype) if name == "mean" else reduced


@rowwise("softmax", "_softmax")
def _softmax(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    # The row's maximum is subtracted, so that no exponential overflows.
    shifted = body.op("sub", x, body.reduce("max", x, dtype=dtype), dtype=dtype)
    raised = body.op("exp", shifted, dtype=dtype)
    return body.op("div", raised, body.reduce("sum", raised, dtype=dtype), dtype=dtype)


@rowwise("log_softmax", "_log_softmax")
def _log_softmax(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    shifted = body.op("sub", x, body.reduce("max", x, dtype=dtype), dtype=dtype)
    total = body.reduce("sum", body.op("exp", shifted, dtype=dtype), dtype=dtype)
    return body.op("sub", shifted, body.op("log", total, dtype=dtype), dtype=dtype)


@rowwise("logsumexp")
def _logsumexp(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    largest = body.reduce("max", x, dtype=dtype)
    # An infinite maximum is the answer itself; subtracting it would give nan.
    infinite = body.op("isinf", largest, dtype="bool")
    shift = body.op("where", infinite, 0.0, largest, dtype=dtype)
    total = body.reduce("sum", body.op("exp", body.op("sub", x, shift, dtype=dtype), dtype=dtype), dtype=dtype)
    return body.op("add", body.op("log", total, dtype=dtype), shift, dtype=dtype)


@rowwise("rms_norm")
def _rms_norm(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    epsilon = argument(node, 3, "eps")
    # torch takes the dtype's epsilon where none is given.
    epsilon = {"float64": 2.220446049250313e-16}.get(dtype, 1.1920928955078125e-07) if epsilon is None else epsilon
    square = body.reduce("sum", body.op("mul", x, x, dtype=dtype), dtype=dtype)
    mean = body.op("div", square, float(body.row_length), dtype=dtype)
    scale = body.op("rsqrt", body.op("add", mean, float(epsilon), dtype=dtype), dtype=dtype)
    return _affine(body, body.op("mul", x, scale, dtype=dtype), argument(node, 2, "weight"), None)


@rowwise("layer_norm")
def _layer_norm(body: Body, node: Node) -> Operand:
    x, dtype = body.value(node.args[0], body.dtype), body.dtype
    centred, variance = _variance(body, x, body.row_length)
    epsilon = float(argument(node, 4, "eps", 1e-5))
    scale = body.op("rsqrt", body.op("add", variance, epsilon, dtype=dtype), dtype=dtype)
    normed = body.op("mul", centred, scale, dtype=dtype)
    return _affine(body, normed, argument(node, 2, "weight"), argument(node, 3, "bias"))


@rowwise("var", "std")
def _var(body: Body, node: Node) -> Operand:
    correction = argument(node, 2, "correction", None)
    if node.op.endswith((".dim", ".default")):
        unbiased = argument(node, 2 if node.op.endswith(".dim") else 1, "unbiased", True)
        correction = 1 if unbiased else 0
    elif correction is None:
        correction = 1
    _, variance = _variance(body, body.value(node.args[0], body.dtype), body.row_length - float(correction))
    return variance if base(node.op) == "aten.var" else body.op("sqrt", variance, dtype=body.dtype)


def _variance(body: Body, x: Operand, divisor: float) -> tuple[Operand, Operand]:
    """(x - mean, sum of its squares over divisor). mean(x^2) - mean(x)^2 would lose every digit far from zero."""
    dtype = body.dtype
    mean = body.op("div", body.reduce("sum", x, dtype=dtype), float(body.row_length), dtype=dtype)
    centred = body.op("sub", x, mean, dtype=dtype)
    square = body.reduce("sum", body.op("mul", centred, centred, dtype=dtype), dtype=dtype)
    return centred, body.op("div", square, float(divisor), dtype=dtype)


def _affine(body: Body, x: Operand, weight: Arg, bias: Arg) -> Operand:
    if isinstance(weight, Ref):
        x = body.op("mul", x, body.value(weight, body.dtype), dtype=body.dtype)
    if isinstance(bias, Ref):
        x = body.op("add", x, body.value(bias, body.dtype), dtype=body.dtype)
    return x


def reduced_dims(node: Node, rank: int) -> tuple[int, ...] | None:
    """The dimensions of its first operand that a ROWWISE node works over, counted from 0; None: cannot tell."""
    name = base(node.op)
    if name in ("aten.rms_norm", "aten.layer_norm"):
        shape = node.args[1]
        return tuple(range(rank - len(shape), rank)) if isinstance(shape, tuple) else None
    dims: Any = None
    if node.op.endswith(".default") and name in ("aten.sum", "aten.prod", "aten.mean", "aten.var", "aten.std"):
        dims = None
    else:
        dims = argument(node, 1, "dim")
    if dims is None or dims == ():
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not all(isinstance(d, int) for d in dims):
        return None
    return tuple(sorted(d % rank for d in dims))
