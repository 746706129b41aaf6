"""Read what `objdump -d` says of a shared library for x86-64: each function's floating-point code, vectorised or not.

Mnemonics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$", re.MULTILINE)
_INSTRUCTION = re.compile(
    r"^\s+[0-9a-f]+:\s+(?:(?:lock|rep\w*|notrack|bnd|cs|ds)\s+)*(?P<code>[a-z][a-z0-9]*)(?P<rest>.*)$", re.M
)
_ARITHMETIC = re.compile(
    r"v?(?:add|sub|mul|div|min|max|sqrt|rsqrt\w*|rcp\w*|hadd|addsub|round|rndscale|scalef|reduce|getexp|range"
    r"|fn?m(?:add|sub|addsub|subadd)(?:132|213|231)|dp\w*)(?P<kind>[ps])[shd]"
)
_CALL = re.compile(r"<(?P<name>[^>@+]+)")
_VECTOR_MATH = re.compile(r"_ZGV[bcde]N")
"""glibc's vector functions (libmvec)."""
_SCALAR_MATH = re.compile(r"(?:exp2?|expm1|log(?:2|10|1p)?|tanh?|sin|cos|sincos|erfc?|pow|sinh|cosh|a?tan2?|cbrt)f?")
_OF_THE_RUNTIME = re.compile(
    r"_init|_fini|_start|.*@plt.*|\.plt.*|.*tm_clones|frame_dummy|__do_global\w*|__cxa\w*|_GLOBAL__\w*"
)

CLASSES = ("packed", "scalar", "load or store", "vector math call", "scalar math call", "call", "branch", "other")


@dataclass(frozen=True)
class Mix:
    """One function's instructions."""

    classes: dict[str, int]
    """`packed` and `scalar` count floating-point arithmetic on many elements at once, and on one."""
    vector_bits: int | None
    """Of the widest register that packed arithmetic uses; None without any."""


def mixes(text: str) -> Iterator[tuple[str, Mix]]:
    """Name and instructions of each function but the runtime's, from `objdump -d --no-show-raw-insn`."""
    starts = list(_FUNCTION.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=False):
        if not _OF_THE_RUNTIME.fullmatch(start["name"]):
            yield start["name"], mix(text[start.end() : end])


def mix(text: str) -> Mix:
    """The instructions of one function."""
    counted: Counter[str] = Counter()
    widths = []
    for found in _INSTRUCTION.finditer(text):
        kind = _class(found["code"], found["rest"])
        counted[kind] += 1
        if kind == "packed":
            widths.append(512 if "%zmm" in found["rest"] else 256 if "%ymm" in found["rest"] else 128)
    return Mix(dict(counted), max(widths, default=None))


def _class(code: str, operands: str) -> str:
    if arithmetic := _ARITHMETIC.fullmatch(code):
        return "packed" if arithmetic["kind"] == "p" else "scalar"
    if code.startswith("call"):
        return _callee(operands)
    if code.startswith("j") or code.startswith("ret"):
        return "branch"
    if "(" in operands and not code.startswith(("lea", "nop")):
        return "load or store"
    return "other"


def _callee(operands: str) -> str:
    name = (_CALL.search(operands) or {"name": ""})["name"]
    if _VECTOR_MATH.match(name):
        return "vector math call"
    return "scalar math call" if _SCALAR_MATH.fullmatch(name) else "call"
