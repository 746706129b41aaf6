"""Faults that Triton kernels often have and that small, single calls do not show."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from kernelwright.stages.static.names import Names
from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites, keywords

_READS = frozenset({"load"})
_WRITES = frozenset({"store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas"})


def autotunes_in_place(sites: Sites) -> Iterator[Finding]:
    """An autotuner calls the kernel many times: one that updates its arguments works on its own results then."""
    for node, place in sites.functions:
        for decorator in node.decorators:
            call = decorator.decorator
            if not isinstance(call, cst.Call) or sites.names.dotted(call.func) != "triton.autotune":
                continue
            if {"restore_value", "reset_to_zero"} & set(keywords(call)):
                continue
            both = _touched(node, sites.names, _READS) & _touched(node, sites.names, _WRITES)
            both |= _touched(node, sites.names, _WRITES - {"store"})
            if both:
                names = ", ".join(sorted(both))
                sentence = f"{node.name.value} updates {names} in place and is autotuned without restore_value."
                yield Finding("autotune-in-place", place.line, sentence)


def narrow_offsets(sites: Sites) -> Iterator[Finding]:
    """`program_id * size` is a 32-bit product: from 2**31 elements on it wraps."""
    for node, place in sites.functions:
        if not _is_kernel(node, sites.names) or _mentions(node, {"int64"}):
            continue
        products = m.findall(node.body, m.BinaryOperation(operator=m.Multiply()))
        if any(_mentions(product, {"program_id", *_program_ids(node)}) for product in products):
            sentence = (
                f"{node.name.value} computes offsets from program_id in 32 bits: they wrap beyond 2**31 elements."
            )
            yield Finding("narrow-offsets", place.line, sentence)


def _program_ids(node: cst.FunctionDef) -> set[str]:
    """Names that a program's number is assigned to."""
    found: set[str] = set()
    for assign in m.findall(node.body, m.Assign()):
        assert isinstance(assign, cst.Assign)
        if _mentions(assign.value, {"program_id"}):
            found |= {t.target.value for t in assign.targets if isinstance(t.target, cst.Name)}
    return found


def _is_kernel(node: cst.FunctionDef, names: Names) -> bool:
    found = [
        names.dotted(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator) for d in node.decorators
    ]
    return any(name.startswith("triton.") and name.endswith(".jit") for name in found)


def _touched(node: cst.FunctionDef, names: Names, functions: frozenset[str]) -> set[str]:
    """Parameters that stand first in the address of a load or a store."""
    parameters = {p.name.value for p in node.params.params}
    found: set[str] = set()
    for call in m.findall(node.body, m.Call()):
        assert isinstance(call, cst.Call)
        name = names.dotted(call.func)
        if name.startswith("triton.language.") and name.rpartition(".")[2] in functions and call.args:
            address = call.args[0].value
            while isinstance(address, cst.BinaryOperation):
                address = address.left
            if isinstance(address, cst.Name) and address.value in parameters:
                found.add(address.value)
    return found


def _mentions(node: cst.CSTNode, names: set[str]) -> bool:
    return any(isinstance(n, cst.Name) and n.value in names for n in m.findall(node, m.Name()))
