"""Read what `cuobjdump` says of a cubin: the resources of each kernel, and its instructions by class.

Opcodes: the CUDA Binary Utilities manual, https://docs.nvidia.com/cuda/cuda-binary-utilities/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_TARGET = re.compile(r"^\s*code for (sm_\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?(?P<code>[A-Z][A-Z0-9_.]*)", re.MULTILINE)
_USAGE = re.compile(r"^\s*Function (?P<kernel>[^\s:]+):\s*\n\s*(?P<figures>REG:.*)$", re.MULTILINE)
_FIGURE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")

_CLASS_OF = {
    "tensor core": r"[HIBDQO]G?MMA|WGMMA|UTC\w*MMA",
    "fp32": r"FADD2?|FFMA2?|FMUL2?|FMNMX3?|FSET|FSETP|FSEL|FSWZADD",
    "fp64": r"DADD|DFMA|DMUL|DSETP",
    "packed half": r"H(ADD|FMA|MUL|MNMX|SET|SETP)2",
    "special function": r"MUFU",
    "conversion": r"F2F|F2FP|F2I|F2IP|I2F|I2FP|FRND",
    "async copy": r"LDGSTS|UTMALDG|UTMASTG|UBLKCP|UTMAPF|UTMAREDG",
    "global load": r"LDG|LD",
    "global store": r"STG|ST|RED|REDG|ATOM|ATOMG",
    "shared load": r"LDS|LDSM",
    "shared store": r"STS|STSM|ATOMS",
    "local (spill)": r"LDL|STL",
    "barrier": r"BAR|SYNCS|DEPBAR|LDGDEPBAR|ARRIVES|WARPSYNC|MEMBAR",
    "shuffle": r"SHFL|REDUX|CREDUX|VOTE|VOTEU",
    "branch": r"BRA|BRX|JMP|CALL|RET|EXIT|BSSY|BSYNC",
    "integer": r"U?(IADD\w*|IMAD|V?I(ADD)?MNMX\w*|VIADD|ISETP|LEA|LOP3|SHF|SHL|SHR|PRMT|IABS|POPC|FLO|SGXT|BMSK)",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _CLASS_OF.items()}
CLASSES = (*_CLASS_OF, "other")


@dataclass(frozen=True)
class Mix:
    """One kernel's instructions."""

    classes: dict[str, int]
    load_bits: int | None
    """The widest load from global memory, per thread; None without one."""


def usage(text: str) -> dict[str, dict[str, int]]:
    """By kernel: REG (per thread), SHARED (bytes a block), STACK and LOCAL (bytes a thread), of `-res-usage`."""
    return {
        found["kernel"]: {name: int(value) for name, value in _FIGURE.findall(found["figures"])}
        for found in _USAGE.finditer(text)
    }


def mixes(text: str) -> Iterator[tuple[str, str, Mix]]:
    """Kernel, target and instructions of each function in the output of `-sass`."""
    starts = list(_FUNCTION.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=False):
        targets = _TARGET.findall(text, 0, start.start())
        yield start[1], targets[-1] if targets else "", mix(text[start.end() : end])


def mix(text: str) -> Mix:
    """The instructions of one function; those that do nothing are left out."""
    codes = [found["code"] for found in _INSTRUCTION.finditer(text)]
    counted = Counter(_class(code.split(".")[0]) for code in codes if not code.startswith("NOP"))
    loads = [_bits(code) for code in codes if _class(code.split(".")[0]) in ("global load", "async copy")]
    return Mix(dict(counted), max(loads, default=None))


def _class(opcode: str) -> str:
    return next((name for name, pattern in _PATTERNS.items() if pattern.fullmatch(opcode)), "other")


def _bits(code: str) -> int:
    """`LDG.E.128` moves 128 bits; without a width 32."""
    parts = code.split(".")
    sizes = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    return max((sizes[part] for part in parts if part in sizes), default=32)
