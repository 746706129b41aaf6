"""Lowering rules for reductions of the trailing dimensions, and for normalisations over them."""

from __future__ import annotations

import math
from typing import Any

from kernelwright.stages.generate.body import Body
from kernelwright.stages.generate.ir import Operand
from kernelwright.stages.generate.rules import argument, base, rowwise, short
from kernelwright.stages.translate.graph import Arg, Node, Ref

_REDUCTIONS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}
_DIM_THIRD = ("aten.linalg_vector_norm", "aten.linalg_norm")
"""Operators whose dimensions are their third argument; of the others it is the second."""
_WHOLE_WITHOUT_DIM = ("aten.sum", "aten.prod", "aten.mean", "aten.any", "aten.all", "aten.var", "aten.std")
"""Operators whose `default` overload takes no dimensions: something else is its second argument."""


@rowwise(*_REDUCTIONS)
def _reduce(body: Body, node: Node) -> Operand:
    return body.reduce(_REDUCTIONS[short(node)], body.value(node.args[0], body.dtype))


@rowwise("argmax", "argmin")
def _index(body: Body, node: Node) -> Operand:
    return body.reduce(short(node), body.value(node.args[0], body.common_dtype(node.args[:1])))


@rowwise("mean")
def _mean(body: Body, node: Node) -> Operand:
    return body.op("div", body.reduce("sum", body.value(node.args[0], body.dtype)), float(body.row_length))


@rowwise("any", "all")
def _any(body: Body, node: Node) -> Operand:
    truths = body.cast(body.value(node.args[0], "bool"), "int32")
    extreme = body.reduce("max" if short(node) == "any" else "min", truths, dtype="int32")
    return body.op("ne", extreme, 0, dtype="bool")


@rowwise("count_nonzero")
def _count(body: Body, node: Node) -> Operand:
    return body.reduce("sum", body.cast(body.value(node.args[0], "bool"), "int64"))


@rowwise("linalg_vector_norm")
def _vector_norm(body: Body, node: Node) -> Operand:
    return _norm(body, body.value(node.args[0], body.dtype), argument(node, 1, "ord", 2))


@rowwise("linalg_norm", when=lambda node, _: _is_vector_norm(node))
def _linalg_norm(body: Body, node: Node) -> Operand:
    return _norm(body, body.value(node.args[0], body.dtype), argument(node, 1, "ord") or 2)


def _is_vector_norm(node: Node) -> bool:
    """With two dimensions it is a matrix norm, and with an order of 0 or a name something else again."""
    dims, order = argument(node, 2, "dim"), argument(node, 1, "ord")
    return isinstance(dims, tuple) and len(dims) == 1 and (order is None or isinstance(order, int | float))


def _norm(body: Body, x: Operand, order: float) -> Operand:
    """(sum |x|^p)^(1/p), and its limits."""
    if order == 2:
        return body.op("sqrt", body.reduce("sum", body.op("mul", x, x)))
    size = body.op("abs", x)
    if math.isinf(order):
        return body.reduce("max" if order > 0 else "min", size)
    if order == 0:
        return body.reduce("sum", body.cast(body.op("ne", x, 0.0, dtype="bool"), body.dtype))
    if order == 1:
        return body.reduce("sum", size)
    return body.op("pow", body.reduce("sum", body.op("pow", size, float(order))), 1.0 / order)


@rowwise("softmax", "_softmax")
def _softmax(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    # The row's maximum is subtracted, so that no exponential overflows.
    raised = body.op("exp", body.op("sub", x, body.reduce("max", x)))
    return body.op("div", raised, body.reduce("sum", raised))


@rowwise("log_softmax", "_log_softmax")
def _log_softmax(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    shifted = body.op("sub", x, body.reduce("max", x))
    return body.op("sub", shifted, body.op("log", body.reduce("sum", body.op("exp", shifted))))


@rowwise("logsumexp")
def _logsumexp(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    largest = body.reduce("max", x)
    # An infinite maximum is the answer itself; subtracting it would give nan.
    shift = body.op("where", body.op("isinf", largest, dtype="bool"), 0.0, largest)
    return body.op("add", body.op("log", body.reduce("sum", body.op("exp", body.op("sub", x, shift)))), shift)


@rowwise("rms_norm")
def _rms_norm(body: Body, node: Node) -> Operand:
    x = body.value(node.args[0], body.dtype)
    epsilon = argument(node, 3, "eps")
    if epsilon is None:
        # Of the dtype in which torch computes: halves in float32.
        epsilon = 2.220446049250313e-16 if body.dtype == "float64" else 1.1920928955078125e-07
    mean = body.op("div", body.reduce("sum", body.op("mul", x, x)), float(body.row_length))
    scale = body.op("rsqrt", body.op("add", mean, float(epsilon)))
    return _affine(body, body.op("mul", x, scale), argument(node, 2, "weight"), None)


@rowwise("layer_norm")
def _layer_norm(body: Body, node: Node) -> Operand:
    centred, variance = _variance(body, body.value(node.args[0], body.dtype), body.row_length)
    scale = body.op("rsqrt", body.op("add", variance, float(argument(node, 4, "eps", 1e-5))))
    return _affine(body, body.op("mul", centred, scale), argument(node, 2, "weight"), argument(node, 3, "bias"))


@rowwise("var", "std")
def _var(body: Body, node: Node) -> Operand:
    correction = argument(node, 2, "correction", None)
    if node.op.endswith((".dim", ".default")):
        correction = float(argument(node, 2 if node.op.endswith(".dim") else 1, "unbiased", True))
    elif correction is None:
        correction = 1
    # With fewer elements than the correction torch divides by zero.
    divisor = max(body.row_length - float(correction), 0.0)
    _, variance = _variance(body, body.value(node.args[0], body.dtype), divisor)
    return variance if short(node) == "var" else body.op("sqrt", variance)


def _variance(body: Body, x: Operand, divisor: float) -> tuple[Operand, Operand]:
    """(x - mean, sum of its squares over divisor). mean(x^2) - mean(x)^2 would lose every digit far from zero."""
    centred = body.op("sub", x, body.op("div", body.reduce("sum", x), float(body.row_length)))
    square = body.reduce("sum", body.op("mul", centred, centred))
    return centred, body.op("div", square, float(divisor))


def _affine(body: Body, x: Operand, weight: Arg, bias: Arg) -> Operand:
    if isinstance(weight, Ref):
        x = body.op("mul", x, body.value(weight, body.dtype))
    if isinstance(bias, Ref):
        x = body.op("add", x, body.value(bias, body.dtype))
    return x


def _reduced_dims(node: Node, rank: int) -> tuple[int, ...] | None:
    """The dimensions of its first operand that a ROWWISE node works over, counted from 0; None: cannot tell."""
    name = base(node.op)
    if name in ("aten.rms_norm", "aten.layer_norm"):
        shape = node.args[1]
        return tuple(range(rank - len(shape), rank)) if isinstance(shape, tuple) else None
    dims: Any = None
    if not (node.op.endswith(".default") and name in _WHOLE_WITHOUT_DIM):
        dims = argument(node, 2 if name in _DIM_THIRD else 1, "dim")
    if dims is None or dims == ():
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not all(isinstance(d, int) for d in dims):
        return None
    return tuple(sorted(d % rank for d in dims))


def trailing(node: Node, rank: int) -> int:
    """How many trailing dimensions of its first operand a ROWWISE node works over; 0 when it works over others."""
    dims = _reduced_dims(node, rank)
    return len(dims) if dims and dims == tuple(range(rank - len(dims), rank)) else 0
