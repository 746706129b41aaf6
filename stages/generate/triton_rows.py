"""Row kernels in Triton: whole rows in registers, or several passes over chunks of a long row.

In the chunked form a reduction that depends on another one waits for a later pass: softmax's sum needs its maximum.
Each pass reads the row again (from cache, as a rule) and recomputes the cheap pointwise lines that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce, Store
from kernelwright.stages.generate.online import online_sums
from kernelwright.stages.generate.scalar import is_float
from kernelwright.stages.generate.triton_index import offset
from kernelwright.stages.generate.triton_scalar import REDUCTIONS, compute_dtype, neutral, pointer_dtype
from kernelwright.stages.generate.triton_statements import Statements, arguments, docstring, indent, signature


@dataclass(frozen=True)
class RowKernel:
    """The source of one row kernel, for a block of `rows` rows by `block` columns (powers of two)."""

    kernel: FusedKernel
    rows: int
    block: int
    wide: bool = False
    """Whether offsets are counted in 64 bits."""

    @cached_property
    def columns(self) -> int:
        """Length of a row."""
        return prod(self.kernel.space[len(self.kernel.space) - self.kernel.reduced :])

    @property
    def chunked(self) -> bool:
        """Whether the block is shorter than the row."""
        return self.block < self.columns

    def source(self) -> str:
        """The whole @triton.jit function."""
        parameters = self._statements.pointers() + (["rows"] if self.rows > 1 else [])
        constants = [
            *(["STAGES"] if self.chunked else []),
            *(["ROWS"] if self.rows > 1 else []),
            *("COLUMNS", "BLOCK"),
        ]
        head = [
            *signature(f"{self.kernel.name}_kernel", parameters, constants),
            *indent(docstring(self.kernel, self._summary)),
            *indent(self._coordinates()),
        ]
        body = self._chunked_body() if self.chunked else self._whole_body()
        return "\n".join([*head, *indent(body)]) + "\n"

    @property
    def _summary(self) -> str:
        span = (
            f"passes over chunks of the {self.columns} columns"
            if self.chunked
            else f"all {self.columns} columns at once"
        )
        return f"{'One row' if self.rows == 1 else 'ROWS rows'} a program, {span}:"

    @cached_property
    def _statements(self) -> Statements:
        return Statements(self.kernel)

    @property
    def _masked(self) -> bool:
        return self.columns % self.block != 0

    def _coordinates(self) -> list[str]:
        program = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"
        lane = "col" if not self.chunked else "lane"
        if self.rows == 1:
            lines = [f"row = {program}", f"{lane} = tl.arange(0, BLOCK)"]
        else:
            lines = [
                f"row = ({program} * ROWS + tl.arange(0, ROWS))[:, None]",
                f"{lane} = tl.arange(0, BLOCK)[None, :]",
                "in_rows = row < rows",
            ]
        if self._masked and not self.chunked:
            lines.append("in_row = col < COLUMNS")
        return lines

    def _whole_body(self) -> list[str]:
        lines = [self._load(load) for load in self.kernel.loads]
        for line in self.kernel.body:
            lines.append(self._statements.op(line) if isinstance(line, Op) else self._reduce_block(line))
        return lines + [self._store(store) for store in self.kernel.stores]

    def _chunked_body(self) -> list[str]:
        lines = [self._load(load) for load in self.kernel.loads if load.domain is Domain.ROW]
        lines += [self._statements.op(op) for op in self._row_ops(0)]
        for number in range(max(self._pass_of.values()) + 1):
            reductions = [r for r in self._reductions if self._pass_of[r.name] == number]
            stores = [s for s in self.kernel.stores if s.domain is Domain.FULL and self._ready[s.value] == number]
            if reductions or stores:
                lines += ["", *self._one_pass(reductions, stores)]
            lines += [self._finish(r) for r in reductions]
            lines += [self._statements.op(op) for op in self._row_ops(number + 1)]
        return lines + [self._store(store) for store in self.kernel.stores if store.domain is Domain.ROW]

    def _one_pass(self, reductions: list[Reduce], stores: list[Store]) -> list[str]:
        apart = [r for r in reductions if r.name not in self._online]
        needed = self._closure([r.arg for r in apart] + [s.value for s in stores])
        loop = ["col = start + lane"] + (["in_row = col < COLUMNS"] if self._masked else [])
        loop += [self._load(load) for load in self.kernel.loads if load.name in needed and load.domain is Domain.FULL]
        loop += [
            self._statements.op(op)
            for op in self.kernel.body
            if isinstance(op, Op) and op.name in needed and op.domain is Domain.FULL
        ]
        for reduction in apart:
            loop += self._accumulate(reduction)
        loop += [self._store(store) for store in stores]
        start = [line for reduction in reductions for line in self._start(reduction)]
        return [*start, "for start in tl.range(0, COLUMNS, BLOCK, num_stages=STAGES):", *indent(loop)]

    @cached_property
    def _reductions(self) -> list[Reduce]:
        return [line for line in self.kernel.body if isinstance(line, Reduce)]

    @cached_property
    def _ready(self) -> dict[str, int]:
        """The number of the first pass in which a value can be used: one more than its latest reduction's pass."""
        ready = {load.name: 0 for load in self.kernel.loads}
        for line in self.kernel.body:
            latest = max((ready[a] for a in arguments(line)), default=0)
            # A sum that is taken along with its maximum is ready when the maximum is.
            later = isinstance(line, Reduce) and line.name not in self._online
            ready[line.name] = latest + 1 if later else latest
        return ready

    @cached_property
    def _online(self) -> dict[str, str]:
        return online_sums(self.kernel)

    @cached_property
    def _pass_of(self) -> dict[str, int]:
        passes = {r.name: self._ready[r.name] - 1 for r in self._reductions}
        stores = {s.target: self._ready[s.value] for s in self.kernel.stores if s.domain is Domain.FULL}
        return {**passes, **{f"store {target}": number for target, number in stores.items()}}

    def _row_ops(self, ready: int) -> list[Op]:
        return [
            line
            for line in self.kernel.body
            if isinstance(line, Op) and line.domain is Domain.ROW and self._ready[line.name] == ready
        ]

    def _closure(self, values: list[str]) -> set[str]:
        """The values that a pass has to load or recompute: everything below `values` that is not known per row."""
        needed: set[str] = set(values)
        for line in reversed(self.kernel.body):
            if line.name in needed and isinstance(line, Op) and line.domain is Domain.FULL:
                needed.update(arguments(line))
        return needed

    # -- coordinates of loads and stores -------------------------------------------------------------------------

    def _load(self, load: Load) -> str:
        split = len(self.kernel.space) - self.kernel.reduced
        by_row = offset("row", self.kernel.space[:split], load.strides[:split])
        if by_row == f"row * {self.columns}":
            by_row = "row * COLUMNS"
        by_column = offset("col", self.kernel.space[split:], load.strides[split:])
        return self._statements.load(load, " + ".join(filter(None, (by_row, by_column))), self._mask(by_row, by_column))

    def _store(self, store: Store) -> str:
        if store.domain is Domain.ROW:
            return self._statements.store(store, "row", self._mask("row", ""))
        return self._statements.store(store, "row * COLUMNS + col", self._mask("row", "col"))

    def _mask(self, by_row: str, by_column: str) -> str:
        parts = [
            "in_rows" if self.rows > 1 and by_row else "",
            "in_row" if self._masked and by_column else "",
        ]
        return " & ".join(filter(None, parts))

    # -- reductions ----------------------------------------------------------------------------------------------

    @property
    def _axis(self) -> str:
        return "axis=0" if self.rows == 1 else "axis=1, keep_dims=True"

    @property
    def _shape(self) -> str:
        return "[BLOCK]" if self.rows == 1 else "[ROWS, BLOCK]"

    def _element(self, reduction: Reduce) -> str:
        """The value to reduce: in the dtype of the reduction, neutral outside the row."""
        value = self._statements.names[reduction.arg]
        held = self._statements.dtypes[reduction.arg]
        dtype = self._lane_dtype(reduction)
        if held != dtype:
            value = f"{value}.to({pointer_dtype(dtype)})"
        if self._masked:
            return f"tl.where(in_row, {value}, {neutral(reduction.fn, dtype)})"
        return value if reduction.arg in self._wide else f"tl.broadcast_to({value}, {self._shape})"

    @cached_property
    def _wide(self) -> set[str]:
        """The values that have one element a column, and so the shape of the block."""
        split = len(self.kernel.space) - self.kernel.reduced
        found = {load.name for load in self.kernel.loads if any(load.strides[:split]) and any(load.strides[split:])}
        for line in self.kernel.body:
            if isinstance(line, Op) and found & set(arguments(line)):
                found.add(line.name)
        return found

    def _lane_dtype(self, reduction: Reduce) -> str:
        """The dtype that each lane accumulates in."""
        if reduction.fn in ("argmax", "argmin"):
            held = self._statements.dtypes[reduction.arg]
            return "int32" if held == "bool" else held
        return compute_dtype(reduction.dtype)

    def _reduce_block(self, reduction: Reduce) -> str:
        return f"{self._statements.names[reduction.name]} = {self._join(reduction, self._element(reduction), 'col')}"

    def _join(self, reduction: Reduce, lanes: str, index: str) -> str:
        """The reduction of a vector of lanes to one value a row."""
        dtype = self._lane_dtype(reduction)
        if reduction.fn in ("argmax", "argmin"):
            key = _order_key(reduction.fn, lanes, is_float(dtype))
            return f"_first_of_largest({key}, {index}, {self._axis}).to({pointer_dtype(reduction.dtype)})"
        rule = REDUCTIONS[reduction.fn]
        return (rule.join_float if is_float(dtype) else rule.join_int).format(lanes, axis=self._axis)

    def _start(self, reduction: Reduce) -> list[str]:
        name = self._statements.names[reduction.name]
        dtype = self._lane_dtype(reduction)
        lines = [f"{name}_lanes = tl.full({self._shape}, {neutral(reduction.fn, dtype)}, {pointer_dtype(dtype)})"]
        if reduction.fn in ("argmax", "argmin"):
            lines.append(f"{name}_at = tl.broadcast_to(lane, {self._shape})")
        return lines

    def _accumulate(self, reduction: Reduce) -> list[str]:
        name = self._statements.names[reduction.name]
        lanes, new = f"{name}_lanes", f"{name}_in"
        read = f"{new} = {self._element(reduction)}"
        if reduction.fn in ("argmax", "argmin"):
            better = f"{new} {'>' if reduction.fn == 'argmax' else '<'} {lanes}"
            if is_float(self._lane_dtype(reduction)):
                better = f"({better}) | (({new} != {new}) & ({lanes} == {lanes}))"
            return [
                read,
                f"{name}_better = {better}",
                f"{lanes} = tl.where({name}_better, {new}, {lanes})",
                f"{name}_at = tl.where({name}_better, col, {name}_at)",
            ]
        step = REDUCTIONS[reduction.fn].step.format(lanes, new)
        sums = [self._statements.names[total] for total, top in self._online.items() if top == reduction.name]
        if not sums:
            return [read, f"{lanes} = {step}"]
        rescaled = [
            f"{total}_lanes = {total}_lanes * _exp_below({lanes}, {name}_new) + _exp_below({new}, {name}_new)"
            for total in sums
        ]
        return [read, f"{name}_new = {step}", *rescaled, f"{lanes} = {name}_new"]

    def _finish(self, reduction: Reduce) -> str:
        name = self._statements.names[reduction.name]
        lanes = f"{name}_lanes"
        if reduction.name in self._online:
            top = self._statements.names[self._online[reduction.name]]
            lanes = f"{lanes} * _exp_below({top}_lanes, {top})"
        return f"{name} = {self._join(reduction, lanes, f'{name}_at')}"


def _order_key(fn: str, lanes: str, floating: bool) -> str:
    """Integers whose largest marks the element that argmax or argmin looks for."""
    if floating:
        # Adding zero makes -0.0 and 0.0 equal, so that the first of them wins.
        return f"_max_key({lanes} + 0.0)" if fn == "argmax" else f"_max_key(0.0 - {lanes})"
    return lanes if fn == "argmax" else f"~{lanes}"
