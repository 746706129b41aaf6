"""Which values of a row kernel are had in which pass over the row.

A reduction's result is known after its pass, so what depends on it stands in a later one; by then the row is in the
first-level cache. A costly value that a later pass needs again is kept in a buffer or computed again.
"""

from __future__ import annotations

from functools import cached_property

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce

COSTLY = ("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "tanh", "erf", "sigmoid", "pow", "sin", "cos")
"""Functions worth a buffer when a later pass needs their value again."""
LONGEST_KEPT = 32768
"""Elements of a row that is kept on a thread's stack, at most: 128 KiB of float32."""


class Passes:
    """The passes of one kernel."""

    def __init__(self, kernel: FusedKernel) -> None:
        self.kernel = kernel
        self.body = {line.name: line for line in kernel.body}
        self._rows = {value.name for value in (*kernel.loads, *kernel.body) if _domain(value) is Domain.ROW}
        self.number: dict[str, int] = {load.name: 0 for load in kernel.loads}
        """The pass in which each value is had first; a row's own value counts to the pass after which it is known."""
        for line in kernel.body:
            self.number[line.name] = max((self._after(name, line) for name in operands(line)), default=0)

    @cached_property
    def last(self) -> int:
        """The last pass that does anything."""
        ready = [self.ready(store.value) for store in self.kernel.stores if store.domain is Domain.FULL]
        reductions = [self.number[line.name] for line in self.kernel.body if isinstance(line, Reduce)]
        return max([*ready, *reductions, 0])

    def ready(self, name: str) -> int:
        """The pass that can store this value over the whole row."""
        return self._after_row(name)

    def is_row(self, name: str) -> bool:
        """Whether there is one such value a row."""
        return name in self._rows

    def needed(self, wanted: list[str], number: int, kept: set[str]) -> set[str]:
        """The values at a point that must be had in a pass to get these; a row's own values are had already."""
        found: set[str] = set()
        waiting = [name for name in wanted if not self.is_row(name)]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            line = self.body.get(name)
            if line is not None and not (name in kept and self.number[name] < number):
                waiting += [operand for operand in operands(line) if not self.is_row(operand)]
        return found

    def reused(self) -> set[str]:
        """Costly values that a later pass needs again, and that have room on the stack."""
        found: set[str] = set()
        for line in self.kernel.body:
            found |= {o for o in operands(line) if o in self.body and self.number[o] < self.number[line.name]}
        return {name for name in found if self._costly(name)}

    def _costly(self, name: str) -> bool:
        line = self.body[name]
        return isinstance(line, Op) and line.domain is Domain.FULL and line.fn in COSTLY

    def _after(self, operand: str, line: Op | Reduce) -> int:
        """The first pass in which the line can use the operand."""
        at_point = isinstance(line, Reduce) or line.domain is Domain.FULL
        return self._after_row(operand) if at_point else self.number[operand]

    def _after_row(self, name: str) -> int:
        """The first pass whose points can use the value: a row's own is computed at the end of a pass."""
        return self.number[name] + (1 if name in self.body and self.is_row(name) else 0)


def _domain(value: Load | Op | Reduce) -> Domain:
    return Domain.ROW if isinstance(value, Reduce) else value.domain


def operands(line: Op | Reduce) -> tuple[str, ...]:
    """The values that a line reads."""
    return (line.arg,) if isinstance(line, Reduce) else tuple(a for a in line.args if isinstance(a, str))
