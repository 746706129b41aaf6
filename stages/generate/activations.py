"""Lowering rules for activation functions."""

from __future__ import annotations

import math

from kernelwright.stages.generate.body import Body
from kernelwright.stages.generate.ir import Operand
from kernelwright.stages.generate.pointwise import clamped
from kernelwright.stages.generate.rules import argument, pointwise
from kernelwright.stages.translate.graph import Node

SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)
"""alpha and scale of Klambauer et al., Self-Normalizing Neural Networks (2017)."""


def _input(body: Body, node: Node) -> Operand:
    return body.value(node.args[0], body.dtype)


@pointwise("relu")
def _relu(body: Body, node: Node) -> Operand:
    return clamped(body, _input(body, node), 0, None)


@pointwise("relu6")
def _relu6(body: Body, node: Node) -> Operand:
    return clamped(body, _input(body, node), 0, 6)


@pointwise("leaky_relu")
def _leaky_relu(body: Body, node: Node) -> Operand:
    x, slope = _input(body, node), float(argument(node, 1, "negative_slope", 0.01))
    return body.op("where", body.op("gt", x, 0.0, dtype="bool"), x, body.op("mul", x, slope))


@pointwise("threshold")
def _threshold(body: Body, node: Node) -> Operand:
    x, threshold, value = (body.value(a, body.dtype) for a in node.args)
    return body.op("where", body.op("le", x, threshold, dtype="bool"), value, x)


@pointwise("elu")
def _elu(body: Body, node: Node) -> Operand:
    alpha, scale, inner = (float(argument(node, i, n, 1)) for i, n in ((1, "alpha"), (2, "scale"), (3, "input_scale")))
    return _exponential_unit(body, _input(body, node), alpha, scale, inner)


@pointwise("selu")
def _selu(body: Body, node: Node) -> Operand:
    return _exponential_unit(body, _input(body, node), *SELU, inner=1.0)


@pointwise("celu")
def _celu(body: Body, node: Node) -> Operand:
    alpha = float(argument(node, 1, "alpha", 1.0))
    return _exponential_unit(body, _input(body, node), alpha, 1.0, 1.0 / alpha)


def _exponential_unit(body: Body, x: Operand, alpha: float, scale: float, inner: float) -> Operand:
    """scale x above zero, scale alpha (exp(inner x) - 1) below."""
    scaled = x if inner == 1.0 else body.op("mul", x, inner)
    below = body.op("mul", body.op("expm1", scaled), alpha * scale)
    above = x if scale == 1.0 else body.op("mul", x, scale)
    return body.op("where", body.op("gt", x, 0.0, dtype="bool"), above, below)


@pointwise("gelu")
def _gelu(body: Body, node: Node) -> Operand:
    """x/2 (1 + erf(x / sqrt 2)), or its tanh form (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016)."""
    x = _input(body, node)
    if argument(node, 1, "approximate", "none") == "tanh":
        cube = body.op("mul", body.op("mul", x, x), x)
        inner = body.op("add", x, body.op("mul", cube, 0.044715))
        gate = body.op("tanh", body.op("mul", inner, math.sqrt(2 / math.pi)))
    else:
        gate = body.op("erf", body.op("mul", x, math.sqrt(0.5)))
    return body.op("mul", body.op("mul", x, 0.5), body.op("add", gate, 1.0))


@pointwise("silu")
def _silu(body: Body, node: Node) -> Operand:
    """x / (1 + exp(-x)): rounds once less than x sigmoid(x)."""
    x = _input(body, node)
    return body.op("div", x, body.op("add", body.op("exp", body.op("neg", x)), 1.0))


@pointwise("softplus")
def _softplus(body: Body, node: Node) -> Operand:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold, before the exponential overflows."""
    beta, threshold = float(argument(node, 1, "beta", 1)), float(argument(node, 2, "threshold", 20))
    x = _input(body, node)
    scaled = x if beta == 1.0 else body.op("mul", x, beta)
    soft = body.op("log1p", body.op("exp", scaled))
    soft = soft if beta == 1.0 else body.op("div", soft, beta)
    return body.op("where", body.op("gt", scaled, threshold, dtype="bool"), x, soft)


@pointwise("mish")
def _mish(body: Body, node: Node) -> Operand:
    """x tanh(log(1 + exp(x))): Misra, Mish: A Self Regularized Non-Monotonic Activation Function (2019)."""
    x = _input(body, node)
    return body.op("mul", x, body.op("tanh", body.op("log1p", body.op("exp", x))))


@pointwise("hardsigmoid")
def _hardsigmoid(body: Body, node: Node) -> Operand:
    return body.op("div", clamped(body, body.op("add", _input(body, node), 3.0), 0, 6), 6.0)


@pointwise("hardswish")
def _hardswish(body: Body, node: Node) -> Operand:
    x = _input(body, node)
    return body.op("div", body.op("mul", x, clamped(body, body.op("add", x, 3.0), 0, 6)), 6.0)


@pointwise("log_sigmoid")
def _log_sigmoid(body: Body, node: Node) -> Operand:
    """min(x, 0) - log(1 + exp(-|x|)): neither overflows nor cancels."""
    x = _input(body, node)
    soft = body.op("log1p", body.op("exp", body.op("neg", body.op("abs", x))))
    return body.op("sub", body.op("minimum", x, 0.0), soft)


@pointwise("hardshrink")
def _hardshrink(body: Body, node: Node) -> Operand:
    x, edge = _input(body, node), float(argument(node, 1, "lambd", 0.5))
    inside = body.op("le", body.op("abs", x), edge, dtype="bool")
    return body.op("where", inside, 0.0, x)


@pointwise("softshrink")
def _softshrink(body: Body, node: Node) -> Operand:
    x, edge = _input(body, node), float(argument(node, 1, "lambd", 0.5))
    # Inside, 0 x instead of 0 keeps a nan.
    inner = body.op("where", body.op("lt", x, -edge, dtype="bool"), body.op("add", x, edge), body.op("mul", x, 0.0))
    return body.op("where", body.op("gt", x, edge, dtype="bool"), body.op("sub", x, edge), inner)
