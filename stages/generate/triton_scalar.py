"""How dtypes, scalar functions and row reductions are written in Triton."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kernelwright.stages.generate.ir import FusedKernel, Operand, Reduce
from kernelwright.stages.generate.scalar import COMPARISONS, is_float

_HALVES = ("float16", "bfloat16")
_NAMES = {"bool": "int1"}
_DTYPES = {"bool", "int32", "int64", "float16", "bfloat16", "float32"}
_ON_INTEGERS = {"add", "sub", "mul", "neg", "abs", "sign", "maximum", "minimum", *COMPARISONS}

EXPRESSIONS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "tl.div_rn({0}, {1})",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "tl.rsqrt({0})",
    "exp": "_exp({0})",
    "exp2": "tl.exp2({0})",
    "expm1": "_expm1({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log10": "tl.log({0}) * 0.4342944819032518",
    "log1p": "_log1p({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tanh": "_tanh({0})",
    "erf": "tl.erf({0})",
    "sigmoid": "tl.div_rn(1.0, 1.0 + _exp(-{0}))",
    "pow": "_pow({0}, {1})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "_round({0})",
    "trunc": "_trunc({0})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "where": "tl.where({0}, {1}, {2})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "~{0}",
    "sign": "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to({dtype})",
}
"""All of `scalar.FUNCTIONS` but `cast`. `{dtype}` is the result's; names with an underscore are `triton_math`'s."""


@dataclass(frozen=True)
class Reduction:
    """How a reduction runs over chunks: start at `neutral`, fold elements in with `step`, join the lanes at the end.

    `join` is a call with `{0}` for the vector of lanes and `{axis}` for the arguments that name the reduced axis.
    """

    neutral: float | None
    """None: the lowest or highest value of the dtype, by `lowest`."""
    step: str
    join_float: str
    join_int: str
    lowest: bool = True


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(0, "{0} + {1}", "tl.sum({0}, {axis})", "tl.sum({0}, {axis})"),
    "prod": Reduction(
        1, "{0} * {1}", "tl.reduce({0}, combine_fn=_multiply, {axis})", "tl.reduce({0}, combine_fn=_multiply, {axis})"
    ),
    "max": Reduction(None, EXPRESSIONS["maximum"], "_row_max({0}, {axis})", "tl.max({0}, {axis})"),
    "min": Reduction(None, EXPRESSIONS["minimum"], "_row_min({0}, {axis})", "tl.min({0}, {axis})", lowest=False),
}


def pointer_dtype(dtype: str) -> str:
    """The `tl` name of a torch dtype."""
    return "tl." + _NAMES.get(dtype, dtype)


def compute_dtype(dtype: str) -> str:
    """The torch dtype in which a value of `dtype` is held in registers: halves are computed in float32."""
    return "float32" if dtype in _HALVES else dtype


def literal(value: Operand) -> str:
    """A Python number as Triton source."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def neutral(fn: str, dtype: str) -> str:
    """The element that leaves the reduction of a `dtype` row unchanged, as source."""
    reduction = REDUCTIONS[fn.removeprefix("arg")]
    if reduction.neutral is not None:
        return repr(float(reduction.neutral)) if is_float(dtype) else repr(int(reduction.neutral))
    if is_float(dtype):
        return 'float("-inf")' if reduction.lowest else 'float("inf")'
    bits = int(re.sub(r"\D", "", dtype))
    return str(-(2 ** (bits - 1))) if reduction.lowest else str(2 ** (bits - 1) - 1)


def helpers_in(text: str) -> set[str]:
    """Names of the helper functions (`_exp`) that the text calls or passes on."""
    return set(re.findall(r"(?<![\w.])_[a-z]\w*", text))


def expressible(kernel: FusedKernel) -> bool:
    """Whether every line of the kernel has a Triton form here: no float64, and on integers only what is exact."""
    dtypes = {v.name: v.dtype for v in (*kernel.loads, *kernel.body)}
    if not {*dtypes.values(), *(s.spec.dtype for s in kernel.stores)} <= _DTYPES:
        return False
    for line in kernel.body:
        if isinstance(line, Reduce):
            fits = line.dtype != "bool"
        else:
            operands = {dtypes[a] for a in line.args[line.fn == "where" :] if isinstance(a, str)} or {line.dtype}
            fits = all(_takes(line.fn, dtype) for dtype in operands)
        if not fits:
            return False
    return True


def _takes(fn: str, dtype: str) -> bool:
    if is_float(dtype) or fn in ("cast", "where", "eq", "ne"):
        return True
    return fn.startswith("logical") if dtype == "bool" else fn in _ON_INTEGERS
