"""Row reductions in C++: a partial result in each lane, joined after the pass.

The lanes are independent chains of operations, which the compiler turns into vectors; each lane's sum rounds less than
one long sum would.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.stages.generate.cpp_scalar import c_type
from kernelwright.stages.generate.ir import Reduce
from kernelwright.stages.generate.scalar import is_float

HELPERS = {
    "above": """
// Whether a value takes the place of the largest so far. The first nan does, and stays.
template <typename T> static inline bool above(T value, T best) {
    return (value > best) | ((value != value) & (best == best));
}
""",
    "below": """
// Whether a value takes the place of the smallest so far. The first nan does, and stays.
template <typename T> static inline bool below(T value, T best) {
    return (value < best) | ((value != value) & (best == best));
}
""",
}
"""What the emitted reductions call, by name."""


def helpers(text: str) -> str:
    """The helpers that this C++ text calls."""
    return "\n".join(helper.strip() for name, helper in HELPERS.items() if f"{name}(" in text)


def start(reduction: Reduce, dtype: str, lanes: int) -> Iterator[str]:
    """Declare the lanes. `dtype` is that of what is reduced."""
    name = reduction.name
    if reduction.fn == "sum":
        yield f"alignas(64) {c_type(reduction.dtype)} {name}_lanes[{lanes}] = {{}};"
        return
    kind = c_type(reduction.dtype if reduction.fn == "prod" else dtype)
    yield f"alignas(64) {kind} {name}_lanes[{lanes}];"
    yield f"for ({kind}& lane : {name}_lanes) lane = {'1' if reduction.fn == 'prod' else _worst(reduction, dtype)};"
    if reduction.fn.startswith("arg"):
        yield f"alignas(64) {_index_type(dtype)} {name}_at[{lanes}];"
        # Not 0 in all lanes: where nothing beats the start, the first position of the row is the answer.
        yield f"for (int lane = 0; lane < {lanes}; ++lane) {name}_at[lane] = lane;"


def fold(reduction: Reduce, dtype: str, index: str) -> Iterator[str]:
    """Take one value into its lane."""
    value, lane = reduction.arg, f"{reduction.name}_lanes[lane]"
    match reduction.fn:
        case "sum":
            yield f"{lane} += {value};"
        case "prod":
            yield f"{lane} *= {value};"
        case "max" | "min":
            yield f"{lane} = {_beats(reduction)}({value}, {lane}) ? {value} : {lane};"
        case _:
            at, better = f"{reduction.name}_at[lane]", f"{reduction.name}_better"
            yield f"const bool {better} = {_beats(reduction)}({value}, {lane});"
            yield f"{lane} = {better} ? {value} : {lane};"
            yield f"{at} = {better} ? static_cast<{_index_type(dtype)}>({index}) : {at};"


def join(reduction: Reduce, dtype: str, lanes: int) -> Iterator[str]:
    """Declare the row's result."""
    name, kind = reduction.name, c_type(dtype)
    loop = f"for (int lane = 1; lane < {lanes}; ++lane)"
    if reduction.fn in ("sum", "prod"):
        yield f"{c_type(reduction.dtype)} {name} = {name}_lanes[0];"
        yield f"{loop} {name} {'+' if reduction.fn == 'sum' else '*'}= {name}_lanes[lane];"
    elif reduction.fn in ("max", "min"):
        yield f"{kind} {name} = {name}_lanes[0];"
        yield f"{loop} {name} = {_beats(reduction)}({name}_lanes[lane], {name}) ? {name}_lanes[lane] : {name};"
    else:
        beats, best = _beats(reduction), f"{name}_best"
        yield f"int64_t {name} = {name}_at[0];"
        yield f"{kind} {best} = {name}_lanes[0];"
        yield f"{loop} {{"
        yield f"    const {kind} other = {name}_lanes[lane];"
        yield f"    const bool tie = !{beats}(other, {best}) & !{beats}({best}, other);"
        yield f"    if ({beats}(other, {best}) | (tie & ({name}_at[lane] < {name}))) {{"
        yield f"        {best} = other;"
        yield f"        {name} = {name}_at[lane];"
        yield "    }"
        yield "}"


def _beats(reduction: Reduce) -> str:
    return "above" if reduction.fn.endswith("max") else "below"


def _worst(reduction: Reduce, dtype: str) -> str:
    """What every value of the dtype takes the place of, or equals."""
    largest = reduction.fn.endswith("max")
    if is_float(dtype):
        return "-INFINITY" if largest else "INFINITY"
    if dtype == "bool":
        return "false" if largest else "true"
    return f"{dtype.upper()}_{'MIN' if largest else 'MAX'}"


def _index_type(dtype: str) -> str:
    """As wide as the values, so that both fill the same number of vectors."""
    return "int64_t" if dtype in ("float64", "int64") else "int32_t"
