"""Pointwise kernels in Triton: one flat index over all points, broadcast operands by division and remainder."""

from __future__ import annotations

from kernelwright.stages.generate.ir import FusedKernel, Op
from kernelwright.stages.generate.triton_index import Index, offset
from kernelwright.stages.generate.triton_statements import Statements, docstring, indent, signature


def pointwise_source(kernel: FusedKernel, index: Index) -> str:
    """The @triton.jit function of a kernel without reductions; each program takes BLOCK neighbouring points."""
    statements = Statements(kernel)
    body = [
        *docstring(kernel, "BLOCK neighbouring points a program:"),
        f"i = {_PROGRAM[index]} * BLOCK + tl.arange(0, BLOCK)",
        "mask = i < points",
    ]
    for load in kernel.loads:
        at = offset("i", kernel.space, load.strides)
        body.append(statements.load(load, at, "mask" if at else ""))
    body += [statements.op(line) for line in kernel.body if isinstance(line, Op)]
    body += [statements.store(store, "i", "mask") for store in kernel.stores]
    constants = ["WIDE", "BLOCK"] if index is Index.BY_SIZE else ["BLOCK"]
    head = signature(f"{kernel.name}_kernel", [*statements.pointers(), "points"], constants)
    return "\n".join([*head, *indent(body)]) + "\n"


_PROGRAM = {
    Index.INT32: "tl.program_id(0)",
    Index.INT64: "tl.program_id(0).to(tl.int64)",
    Index.BY_SIZE: "tl.program_id(0).to(tl.int64 if WIDE else tl.int32)",
}
