"""One fused kernel as a C++ function: rows in parallel, each row in as few passes as its reductions allow.

A pass is one loop over the row. A reduction's result is known after its pass, so what depends on it stands in a later
one; by then the row is in the first-level cache. A costly value that a later pass needs again is kept in a buffer or
computed again, as the template's `keep` parameter says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.stages.generate.cpp_scalar import TYPES, c_type, expression
from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce, Store
from kernelwright.stages.generate.scalar import is_float

COSTLY = ("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "tanh", "erf", "sigmoid", "pow", "sin", "cos")
"""Functions worth a buffer when a later pass needs their value again."""
SMALL = 32768
"""Elements below which starting threads costs more than it saves."""


@dataclass(frozen=True)
class Style:
    """A choice of the template's parameters."""

    lanes: int
    """Partial results of a reduction, and elements that one streaming store block holds."""
    stream: bool
    """Write large outputs past the cache."""
    keep: str
    """`buffer` or `recompute`."""
    block: int
    """Elements of a block of a flat kernel: the unit of work that threads take."""


@dataclass(frozen=True)
class Geometry:
    """The space as rows of `length` elements; `flat` when rows do not matter and any split will do."""

    inner: int
    """Trailing dimensions that make up a row."""
    length: int
    flat: bool


def geometry(kernel: FusedKernel) -> Geometry | None:
    """How the space is walked; None when a row's elements have no single stride in some tensor."""
    rank = len(kernel.space)
    if kernel.reduced:
        if not all(_collapses(kernel.space, load.strides, kernel.reduced) for load in kernel.loads):
            return None
        return Geometry(kernel.reduced, math.prod(kernel.space[rank - kernel.reduced :]), False)
    walks = [load.strides for load in kernel.loads]
    inner = next(n for n in range(rank, -1, -1) if all(_collapses(kernel.space, strides, n) for strides in walks))
    dense = dense_strides(kernel.space)
    flat = all(load.strides == dense or not any(load.strides) for load in kernel.loads)
    return Geometry(inner, math.prod(kernel.space[rank - inner :]), flat)


def supported(kernel: FusedKernel) -> bool:
    """Whether this back end can write the kernel."""
    dtypes = {load.dtype for load in kernel.loads} | {line.dtype for line in kernel.body}
    return dtypes <= TYPES.keys() and geometry(kernel) is not None


def function(kernel: FusedKernel, style: Style) -> str:
    """The kernel's text."""
    return "\n".join(_Writer(kernel, style).lines())


def keeps_something(kernel: FusedKernel) -> bool:
    """Whether the choice between keeping and computing again makes a difference."""
    return bool(_Writer(kernel, Style(16, False, "buffer", 1)).buffered)


class _Writer:
    def __init__(self, kernel: FusedKernel, style: Style) -> None:
        self.kernel = kernel
        self.style = style
        found = geometry(kernel)
        assert found is not None
        self.geometry = found
        self.loads = {load.name: load for load in kernel.loads}
        self.body = {line.name: line for line in kernel.body}
        self.dtypes = {load.name: load.dtype for load in kernel.loads} | {line.name: line.dtype for line in kernel.body}
        self.passes = self._passes()
        self.last = max([*self.passes.values(), 0])
        self.buffered = self._buffered()

    def lines(self) -> Iterator[str]:
        pointers = [f"const {c_type(load.dtype)}* __restrict {_pointer(load.source)}" for load in self.kernel.loads]
        pointers += [f"{c_type(s.spec.dtype)}* __restrict {_pointer(s.target)}" for s in self.kernel.stores]
        count = "count" if self.geometry.flat else "rows"
        yield f'extern "C" void {self.kernel.name}(int64_t {count}, {", ".join(pointers)}) {{'
        yield from _indented(self._flat() if self.geometry.flat else self._rows())
        yield "}"

    def _flat(self) -> Iterator[str]:
        yield f"constexpr int64_t BLOCK = {self.style.block};  // fits the second-level cache with its inputs"
        yield f"#pragma omp parallel for schedule(static) if (count > {SMALL})"
        yield "for (int64_t begin = 0; begin < count; begin += BLOCK) {"
        yield "    const int64_t length = std::min(BLOCK, count - begin);"
        for load in self.kernel.loads:
            offset = " + begin" if any(load.strides) else ""
            yield f"    const {c_type(load.dtype)}* {load.name}_at = {_pointer(load.source)}{offset};"
        for store in self.kernel.stores:
            yield f"    {c_type(store.spec.dtype)}* {_out(store)} = {_pointer(store.target)} + begin;"
        yield from _indented(self._pass(0, "length"))
        yield "}"

    def _rows(self) -> Iterator[str]:
        outer = self.kernel.space[: len(self.kernel.space) - self.geometry.inner]
        yield f"constexpr int64_t LENGTH = {self.geometry.length};"
        yield f"#pragma omp parallel for schedule(static) if (rows * LENGTH > {SMALL})"
        yield "for (int64_t row = 0; row < rows; ++row) {"
        for load in self.kernel.loads:
            base = _row_offset(outer, load.strides[: len(outer)])
            yield f"    const {c_type(load.dtype)}* {load.name}_at = {_pointer(load.source)}{base};"
        for store in self.kernel.stores:
            step = " * LENGTH" if store.domain is Domain.FULL else ""
            yield f"    {c_type(store.spec.dtype)}* {_out(store)} = {_pointer(store.target)} + row{step};"
        for name in sorted(self.buffered, key=list(self.body).index):
            yield f"    alignas(64) {c_type(self.dtypes[name])} {name}_kept[LENGTH];  // for the next pass"
        for load in self.kernel.loads:
            if load.domain is Domain.ROW:
                yield f"    const {c_type(load.dtype)} {load.name} = *{load.name}_at;"
        for number in range(self.last + 1):
            yield from _indented(self._pass(number, "LENGTH"))
        for store in self.kernel.stores:
            if store.domain is Domain.ROW:
                yield f"    *{_out(store)} = {store.value};"
        yield "}"

    def _pass(self, number: int, length: str) -> Iterator[str]:
        """One loop over the row, the reductions that it feeds, and the row's values that follow from them."""
        work = _Pass(
            number,
            reductions=[r for r in self.kernel.body if isinstance(r, Reduce) and self.passes[r.name] == number],
            stores=[s for s in self.kernel.stores if s.domain is Domain.FULL and self._ready(s.value) == number],
            keeps=[name for name in self.body if name in self.buffered and self.passes[name] == number],
        )
        if work.reductions or work.stores or work.keeps:
            yield from self._loop(work, length)
        for reduction in work.reductions:
            yield from self._result(reduction, number, length)
        for line in self.kernel.body:
            if isinstance(line, Op) and line.domain is Domain.ROW and self.passes[line.name] == number:
                yield self._line(line)

    def _loop(self, work: _Pass, length: str) -> Iterator[str]:
        streamed = [s for s in work.stores if self._streams(s)]
        if not work.reductions and not streamed:
            yield "#pragma omp simd"
            yield f"for (int64_t j = 0; j < {length}; ++j) {{"
            yield from _indented(self._element(work, "j", streamed=[]))
            yield "}"
            return
        lanes = self.style.lanes
        for reduction in work.reductions:
            yield from _accumulators(reduction, self.dtypes[reduction.arg], lanes)
        ragged = self.geometry.flat or self.geometry.length % lanes != 0
        yield "{"
        yield "    int64_t j = 0;"
        yield f"    for (; j + {lanes} <= {length}; j += {lanes}) {{"
        for store in streamed:
            yield f"        alignas(64) {c_type(store.spec.dtype)} {_out(store)}_block[{lanes}];"
        yield "        #pragma omp simd"
        yield f"        for (int64_t lane = 0; lane < {lanes}; ++lane) {{"
        yield from _indented(self._element(work, "j + lane", streamed), 3)
        yield "        }"
        for store in streamed:
            yield f"        stream({_out(store)} + j, {_out(store)}_block, {lanes});"
        yield "    }"
        if ragged:
            yield f"    for (int64_t lane = 0; j < {length}; ++j, ++lane) {{"
            yield from _indented(self._element(work, "j", streamed=[]), 2)
            yield "    }"
        yield "}"

    def _element(self, work: _Pass, index: str, streamed: list[Store]) -> Iterator[str]:
        """What is done at one point of the row."""
        wanted = [r.arg for r in work.reductions] + [s.value for s in work.stores] + work.keeps
        yield from self._statements(wanted, work.number, index)
        for name in work.keeps:
            yield f"{name}_kept[{index}] = {name};"
        for reduction in work.reductions:
            yield from _fold(reduction)
        for store in work.stores:
            target = f"{_out(store)}_block[lane]" if store in streamed else f"{_out(store)}[{index}]"
            yield f"{target} = {store.value};"

    def _statements(self, wanted: list[str], number: int, index: str) -> Iterator[str]:
        """Loads and scalar functions that these values need at one point, in order, each once."""
        needed = self._closure(wanted, number)
        for load in self.kernel.loads:
            if load.name in needed and load.domain is Domain.FULL:
                yield f"const {c_type(load.dtype)} {load.name} = {load.name}_at{self._element_index(load, index)};"
        for name, line in self.body.items():
            if name not in needed:
                continue
            if name in self.buffered and self.passes[name] < number:
                yield f"const {c_type(line.dtype)} {name} = {name}_kept[{index}];"
            elif isinstance(line, Op):
                yield self._line(line)

    def _closure(self, wanted: list[str], number: int) -> set[str]:
        """The values of the row's points that must be had to get these; rows' own values are had already."""
        needed: set[str] = set()
        waiting = list(wanted)
        while waiting:
            name = waiting.pop()
            line = self.body.get(name)
            at_point = line.domain is Domain.FULL if isinstance(line, Op) else line is None
            if name in needed or not at_point:
                continue
            needed.add(name)
            kept = name in self.buffered and self.passes[name] < number
            if isinstance(line, Op) and not kept:
                waiting += [a for a in line.args if isinstance(a, str)]
        return needed

    def _element_index(self, load: Load, index: str) -> str:
        stride = load.strides[-1] if load.strides else 0
        if self.geometry.flat:
            return f"[{index}]" if any(load.strides) else "[0]"
        inner = load.strides[len(load.strides) - self.geometry.inner :]
        if not any(inner):
            return "[0]"
        # Collapsed dimensions share the stride of the innermost one that is longer than 1.
        sizes = self.kernel.space[len(self.kernel.space) - self.geometry.inner :]
        stride = next((s for s, n in zip(reversed(inner), reversed(sizes), strict=True) if n > 1), 0)
        return f"[{index}]" if stride == 1 else f"[({index}) * {stride}]"

    def _line(self, op: Op) -> str:
        names = {name: name for name in self.dtypes}
        return f"const {c_type(op.dtype)} {op.name} = {expression(op, names, self.dtypes)};"

    def _result(self, reduction: Reduce, number: int, length: str) -> Iterator[str]:
        """Join the lanes; for an index, look for the first point that holds the extremum (or a nan)."""
        yield from _joined(reduction, self.dtypes[reduction.arg], self.style.lanes)
        if reduction.fn.startswith("arg"):
            value = reduction.arg
            yield f"int64_t {reduction.name} = 0;"
            yield f"for (int64_t j = 0; j < {length}; ++j) {{"
            yield from _indented(self._statements([value], number, "j"))
            extremum = f"{reduction.name}_extremum"
            same = f"({value} == {extremum}) | (({value} != {value}) & ({extremum} != {extremum}))"
            yield f"    if ({same}) {{ {reduction.name} = j; break; }}"
            yield "}"

    def _passes(self) -> dict[str, int]:
        """The pass in which each value is had first. A row's value counts to the pass after which it is known."""
        found = {load.name: 0 for load in self.kernel.loads}
        for line in self.kernel.body:
            operands = (line.arg,) if isinstance(line, Reduce) else tuple(a for a in line.args if isinstance(a, str))
            number = 0
            for name in operands:
                after_row = self._is_row(name) and name in self.body and not self._is_row_line(line)
                number = max(number, found[name] + (1 if after_row else 0))
            found[line.name] = number
        return found

    def _is_row(self, name: str) -> bool:
        line = self.body.get(name)
        return isinstance(line, Reduce) or (isinstance(line, Op) and line.domain is Domain.ROW)

    def _is_row_line(self, line: Op | Reduce) -> bool:
        return isinstance(line, Op) and line.domain is Domain.ROW

    def _ready(self, name: str) -> int:
        """The pass in which a value can be stored."""
        return self.passes[name] + (1 if self._is_row(name) else 0)

    def _buffered(self) -> set[str]:
        """Values that a later pass reads from a buffer: costly ones, or ones that follow from costly ones alone."""
        if self.style.keep != "buffer" or self.geometry.flat:
            return set()
        return {n for n in reused(self.kernel, self.passes) if self.dtypes[n] != "bool"}

    def _streams(self, store: Store) -> bool:
        """Streaming stores need whole vectors at aligned addresses, in every row."""
        aligned = self.geometry.flat or self.geometry.length % self.style.lanes == 0
        return self.style.stream and aligned and store.spec.dtype == "float32"


@dataclass(frozen=True)
class _Pass:
    """What one loop over the row is for."""

    number: int
    reductions: list[Reduce]
    stores: list[Store]
    keeps: list[str]


def reused(kernel: FusedKernel, passes: dict[str, int]) -> set[str]:
    """Costly values that a later pass needs again."""
    body = {line.name: line for line in kernel.body}
    found: set[str] = set()
    for line in kernel.body:
        operands = (line.arg,) if isinstance(line, Reduce) else tuple(a for a in line.args if isinstance(a, str))
        found |= {o for o in operands if o in body and passes[o] < passes[line.name]}
    for store in kernel.stores:
        # A value may be stored in its own pass, so that alone is no reason to keep it.
        found.discard(store.value)
    return {
        name
        for name in found
        if isinstance(line := body[name], Op) and line.domain is Domain.FULL and line.fn in COSTLY
    }


def _accumulators(reduction: Reduce, dtype: str, lanes: int) -> Iterator[str]:
    # One partial result a lane: the lanes are independent chains of additions, and each rounds less than one long sum.
    kind, name = c_type(reduction.dtype), reduction.name
    if reduction.fn in ("sum", "prod"):
        first = "0" if reduction.fn == "sum" else "1"
        yield f"alignas(64) {kind} {name}_lanes[{lanes}];"
        yield f"std::fill_n({name}_lanes, {lanes}, {kind}({first}));"
        return
    kind = c_type(dtype)
    extreme = "lowest" if reduction.fn.endswith("max") else "max"
    if is_float(dtype):
        worst = f"{'-' if extreme == 'lowest' else ''}std::numeric_limits<{kind}>::infinity()"
    else:
        worst = f"std::numeric_limits<{kind}>::{extreme}()"
    yield f"alignas(64) {kind} {name}_lanes[{lanes}];"
    yield f"std::fill_n({name}_lanes, {lanes}, {worst});"


def _fold(reduction: Reduce) -> Iterator[str]:
    value, lane = reduction.arg, f"{reduction.name}_lanes[lane]"
    if reduction.fn in ("sum", "prod"):
        yield f"{lane} {'+' if reduction.fn == 'sum' else '*'}= {value};"
    else:
        sign = ">" if reduction.fn.endswith("max") else "<"
        # A nan, once there, stays: no comparison with it is true.
        yield f"{lane} = ({value} {sign} {lane}) | ({value} != {value}) ? {value} : {lane};"


def _joined(reduction: Reduce, dtype: str, lanes: int) -> Iterator[str]:
    name = reduction.name
    if reduction.fn in ("sum", "prod"):
        kind, sign = c_type(reduction.dtype), "+" if reduction.fn == "sum" else "*"
        yield f"{kind} {name} = {name}_lanes[0];"
        yield f"for (int lane = 1; lane < {lanes}; ++lane) {name} {sign}= {name}_lanes[lane];"
        return
    sign = ">" if reduction.fn.endswith("max") else "<"
    target = f"{name}_extremum" if reduction.fn.startswith("arg") else name
    yield f"{c_type(dtype)} {target} = {name}_lanes[0];"
    yield f"for (int lane = 1; lane < {lanes}; ++lane) {{"
    yield f"    const {c_type(dtype)} other = {name}_lanes[lane];"
    yield f"    {target} = (other {sign} {target}) | (other != other) ? other : {target};"
    yield "}"


def _collapses(space: tuple[int, ...], strides: tuple[int, ...], inner: int) -> bool:
    """Whether the trailing dimensions act as one: each step over the end of one is a step of the next."""
    pairs = [(n, s) for n, s in zip(space[len(space) - inner :], strides[len(space) - inner :], strict=True) if n > 1]
    return all(s == n_next * s_next for (_, s), (n_next, s_next) in itertools.pairwise(pairs))


def dense_strides(space: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major tensor."""
    strides, step = [], 1
    for size in reversed(space):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _row_offset(sizes: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """` + ...`: the element offset of a row, from its number. The first dimension is never taken modulo its size."""
    groups: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if groups and groups[-1][1] == stride * size:
            groups[-1] = (groups[-1][0] * size, stride)
        else:
            groups.append((size, stride))
    terms, below = [], 1
    for position in range(len(groups) - 1, -1, -1):
        size, stride = groups[position]
        if stride:
            coordinate = "row" if below == 1 else f"row / {below}"
            if position > 0:
                coordinate = f"({coordinate}) % {size}" if below > 1 else f"row % {size}"
            plain = coordinate == "row"
            terms.append(f"{coordinate if plain else f'({coordinate})'}{f' * {stride}' if stride != 1 else ''}")
        below *= size
    return "".join(f" + {term}" for term in reversed(terms))


def _pointer(value: str) -> str:
    return f"p_{value}" if not value.startswith("p_") else value


def _out(store: Store) -> str:
    return f"{store.target}_at"


def _indented(lines: Iterator[str] | list[str], levels: int = 1) -> Iterator[str]:
    for line in lines:
        yield "    " * levels + line if line else line
