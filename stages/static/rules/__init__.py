"""Warnings: one kind a file. A rule takes the sites of a source and yields findings; RULES is the registry."""

from collections.abc import Callable, Iterator

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.rules import foreign, handlers, outside, process, state, triton
from kernelwright.stages.static.sites import Sites

Rule = Callable[[Sites], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    handlers.handler_computes,
    state.keeps_state,
    outside.patches,
    outside.reaches_outside,
    process.changes_flags,
    process.concurrency,
    process.lowers_precision,
    triton.autotunes_in_place,
    triton.narrow_offsets,
    foreign.foreign_text,
)
