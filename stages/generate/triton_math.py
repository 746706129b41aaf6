"""Elementary functions for emitted Triton kernels: small @triton.jit helpers, written out only where they are used.

Triton's own `tl.extra.libdevice` has no interpreter, and `tl.exp` multiplies by log2(e) in float32 before its exp2,
which costs a relative error of |x| times the rounding unit. So what eager computes to an ulp or two is built here from
operations that both the compiler and the interpreter have. All helpers take and give float32; they keep nan, the
limits at infinity, and the sign of zero wherever a formula allows it.
"""

from __future__ import annotations

import re

HELPERS: dict[str, str] = {
    "_exp": """
# e^x = 2^t * e^r, with t = x * log2(e) rounded down to sixteenths, so that r = x - t * ln(2) lies in [0, 0.0434].
# ln(2) is split in two (Cody and Waite): 355/512 has nine bits, which makes t * 355/512 exact.
@triton.jit
def _exp(x):
    x = tl.maximum(x, -150.0, propagate_nan=tl.PropagateNan.ALL)
    t = tl.minimum(tl.floor(x * 23.0831206542234) * 0.0625, 127.9375)
    r = (x - t * 0.693359375) + t * 2.12194440054690583e-4
    e = tl.exp2(t)
    return e + e * (r * (1.0 + r * (0.5 + r * (0.16666667 + r * 0.041666668))))
""",
    "_expm1": """
# e^x - 1: the Taylor series where the subtraction would cancel (next term below 3e-9 at |x| = 1).
@triton.jit
def _expm1(x):
    p = 2.0876757e-9
    p = 2.5052108e-8 + x * p
    p = 2.7557319e-7 + x * p
    p = 2.7557319e-6 + x * p
    p = 2.4801587e-5 + x * p
    p = 1.9841270e-4 + x * p
    p = 1.3888889e-3 + x * p
    p = 8.3333333e-3 + x * p
    p = 4.1666667e-2 + x * p
    p = 1.6666667e-1 + x * p
    p = 0.5 + x * p
    return tl.where(tl.abs(x) < 1.0, x + x * x * p, _exp(x) - 1.0)
""",
    "_log1p": """
# log(1 + x) = log(u) + (x - (u - 1)) / u, with u = 1 + x rounded; the second term gives back what the rounding lost.
@triton.jit
def _log1p(x):
    u = 1.0 + x
    lost = tl.div_rn(x - (u - 1.0), tl.where(u == 0.0, 1.0, u))
    finite = tl.abs(u) < float("inf")
    return tl.where(u == 1.0, x, tl.log(u) + tl.where(finite, lost, 0.0))
""",
    "_tanh": """
# tanh(x) = -m / (m + 2) with m = e^(-2|x|) - 1, which neither cancels nor overflows.
@triton.jit
def _tanh(x):
    m = _expm1(-2.0 * tl.abs(x))
    y = tl.div_rn(-m, m + 2.0)
    return tl.where(x == 0.0, x, tl.where(x < 0.0, -y, y))
""",
    "_round": """
# Nearest integer, ties to even: between 2^23 and 2^24 the float32 numbers are the integers, so the sum rounds to one.
@triton.jit
def _round(x):
    a = tl.abs(x)
    y = tl.where(a < 8388608.0, (a + 8388608.0) - 8388608.0, a)
    return tl.where(x.to(tl.int32, bitcast=True) < 0, -y, y)
""",
    "_trunc": """
# Rounds towards zero.
@triton.jit
def _trunc(x):
    y = tl.floor(tl.abs(x))
    return tl.where(x.to(tl.int32, bitcast=True) < 0, -y, y)
""",
    "_pow": """
# |x|^y as e^(y log|x|) in float64, since the product in float32 would lose as many bits as the exponent has.
# A negative base has a real power for whole exponents only, with the exponent's parity as sign.
@triton.jit
def _pow(x, y):
    a = tl.abs(x)
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(0.5 * y) != 0.5 * y)
    magnitude = tl.exp(y.to(tl.float64) * tl.log(a.to(tl.float64))).to(tl.float32)
    # 0 * inf inside the exponent: 1^inf, 0^0 and inf^0 are 1, as in C; |x|^inf is decided by the side of 1.
    magnitude = tl.where((a == 1.0) | (y == 0.0), 1.0, magnitude)
    negative = x.to(tl.int32, bitcast=True) < 0
    signed = tl.where(negative & odd, -magnitude, magnitude)
    real = (x >= 0.0) | (a == 0.0) | (a == float("inf")) | whole
    answer = tl.where(real | (x != x), signed, float("nan"))
    return tl.where((x == 1.0) | (y == 0.0), 1.0, answer)
""",
    "_max_key": """
# Integers in the order of the float32 numbers, with every nan at the top: the bits of a negative number count down.
@triton.jit
def _max_key(x):
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)
""",
    "_row_max": """
# tl.max drops nan where torch keeps it; the maximum of the keys keeps it.
@triton.jit
def _row_max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    key = tl.max(_max_key(x), axis=axis, keep_dims=keep_dims)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
""",
    "_row_min": """
@triton.jit
def _row_min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return -_row_max(-x, axis=axis, keep_dims=keep_dims)
""",
    "_first_of_largest": """
# The smallest index among those whose key is the largest.
@triton.jit
def _first_of_largest(key, index, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    largest = tl.max(key, axis=axis, keep_dims=keep_dims)
    return tl.min(tl.where(key == largest, index, 0x7FFFFFFF), axis=axis, keep_dims=keep_dims)
""",
    "_exp_below": """
# e^(x - top) for x <= top; zero for x = -inf, also where nothing larger has been seen yet.
@triton.jit
def _exp_below(x, top):
    return tl.where(x == float("-inf"), 0.0, _exp(x - top))
""",
    "_multiply": """
@triton.jit
def _multiply(a, b):
    return a * b
""",
}
"""Source of each helper by name. A helper may call others; `helper_source` puts them in order."""


def helper_source(used: set[str]) -> str:
    """The text of the helpers named in `used` and of those that they call, each before its first use."""
    needed = set(used)
    # HELPERS lists a helper after those that it calls, so one pass from the back finds all of them.
    for name in reversed(HELPERS):
        if name in needed:
            needed.update(_called(HELPERS[name]) & HELPERS.keys())
    return "\n\n".join(HELPERS[name].strip() + "\n" for name in HELPERS if name in needed)


def _called(text: str) -> set[str]:
    return set(re.findall(r"\b(_[a-z]\w*)\(", text))
