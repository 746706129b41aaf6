"""One fused kernel as a C++ function: rows in parallel, each row in as few passes as its reductions allow.

A pass is one loop over the row. It runs in blocks of `lanes` elements where it reduces, or writes past the cache;
the compiler turns a block into vector instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernelwright.stages.generate import cpp_reduce
from kernelwright.stages.generate.cpp_layout import Layout, layout
from kernelwright.stages.generate.cpp_passes import LONGEST_KEPT, Passes
from kernelwright.stages.generate.cpp_scalar import RESERVED, TYPES, c_type, expression
from kernelwright.stages.generate.formula import mathematics
from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op, Reduce, Store
from kernelwright.stages.translate.functional import unused_name

CACHE_LINE = 64
STREAM_VECTOR = 8
"""Floats that a streaming store writes at once: a row must be a multiple, or all but the first would be unaligned."""
CHUNK = 65536
"""Elements that a thread takes at a time when rows are handed out as threads become free."""


@dataclass(frozen=True)
class Style:
    """A choice of the template's parameters."""

    lanes: int = 32
    """Elements of a block: partial results of a reduction, and what is written past the cache at once."""
    stream: bool = False
    """Write large outputs past the cache."""
    keep: bool = True
    """Keep costly values for a later pass, instead of computing them again."""
    prefetch: bool = False
    """Fetch the next row from memory during a row's last pass."""
    schedule: str = "static"
    """How rows are shared out: `static`, in equal parts, or `dynamic`, to whichever thread is free."""
    block: int = 16384
    """Elements of a flat kernel that are shared out together."""


def supported(kernel: FusedKernel) -> bool:
    """Whether this back end can write the kernel."""
    dtypes = {load.dtype for load in kernel.loads} | {line.dtype for line in kernel.body}
    return dtypes <= TYPES.keys() and layout(kernel) is not None


def function(kernel: FusedKernel, style: Style) -> str:
    """The kernel's text. Its parameters: a count (rows; elements when flat), each input once, each output."""
    return "\n".join(_Writer(kernel, style).lines())


def keeps_something(kernel: FusedKernel) -> bool:
    """Whether the choice between keeping and computing again makes a difference."""
    return bool(_Writer(kernel, Style(keep=True)).kept)


def streams_something(kernel: FusedKernel) -> bool:
    """Whether some output can be written past the cache."""
    return any(map(_Writer(kernel, Style(stream=True)).streams, kernel.stores))


def prefetches_something(kernel: FusedKernel) -> bool:
    """Whether there is a later pass during which the next row can be fetched."""
    return bool(_Writer(kernel, Style(prefetch=True)).fetched)


def inputs(kernel: FusedKernel) -> tuple[str, ...]:
    """The graph values that the function takes, each once."""
    return tuple(dict.fromkeys(load.source for load in kernel.loads))


class _Writer:
    def __init__(self, kernel: FusedKernel, style: Style) -> None:
        self.kernel = kernel
        self.style = style
        found = layout(kernel)
        assert found is not None
        self.layout: Layout = found
        self.lanes = style.lanes if found.flat else min(style.lanes, 1 << (found.length.bit_length() - 1))
        self.passes = Passes(kernel)
        self.dtypes = {value.name: value.dtype for value in (*kernel.loads, *kernel.body)}
        taken = set(self.dtypes) | RESERVED
        self.inputs = {source: unused_name(source, taken) for source in inputs(kernel)}
        self.outputs = {store.target: unused_name(f"{store.target}_out", taken) for store in kernel.stores}
        self.rows = {load.name: self._row_start(load, taken) for load in kernel.loads}
        self.output_rows = {name: unused_name(f"{name}_row", taken) for name in self.outputs.values()}
        self.kept: set[str] = set()
        if style.keep and not self.layout.flat and self.layout.length <= LONGEST_KEPT:
            self.kept = self.passes.reused()
        self.fetched = [load for load in kernel.loads if style.prefetch and self._fetches(load)]

    def lines(self) -> Iterator[str]:
        """The function."""
        yield from (f"// {line}" for line in mathematics(self.kernel))
        dtypes = {load.source: load.dtype for load in self.kernel.loads}
        parameters = [f"int64_t {'count' if self.layout.flat else 'rows'}"]
        parameters += [f"const {c_type(dtypes[s])}* __restrict {name}" for s, name in self.inputs.items()]
        parameters += [f"{c_type(s.spec.dtype)}* __restrict {self.outputs[s.target]}" for s in self.kernel.stores]
        yield f'extern "C" void {self.kernel.name}('
        yield from (f"        {parameter}," for parameter in parameters[:-1])
        yield f"        {parameters[-1]}) {{"
        yield from _indented(self._flat() if self.layout.flat else self._rows())
        yield "}"

    def _flat(self) -> Iterator[str]:
        yield f"constexpr int64_t BLOCK = {self.style.block};"
        yield f"#pragma omp parallel for {self._schedule(self.style.block)} if (count > SMALL)"
        yield "for (int64_t begin = 0; begin < count; begin += BLOCK) {"
        yield "    const int64_t length = count - begin < BLOCK ? count - begin : BLOCK;"
        for load in self.kernel.loads:
            if any(load.strides):
                yield f"    const {c_type(load.dtype)}* {self.rows[load.name]} = {self.inputs[load.source]} + begin;"
        yield from _indented(self._output_rows("begin"))
        yield from _indented(self._pass(0, "length"))
        yield "}"

    def _rows(self) -> Iterator[str]:
        yield f"constexpr int64_t LENGTH = {self.layout.length};"
        yield f"#pragma omp parallel for {self._schedule(self.layout.length)} if (rows * LENGTH > SMALL)"
        yield "for (int64_t row = 0; row < rows; ++row) {"
        yield from _indented(self._row_body())
        yield "}"

    def _row_body(self) -> Iterator[str]:
        for load in self.kernel.loads:
            offset = self.layout.row_offset(load)
            source = self.inputs[load.source]
            if load.domain is Domain.ROW:
                yield f"const {c_type(load.dtype)} {load.name} = {source}[{offset or 0}];"
            elif offset:
                yield f"const {c_type(load.dtype)}* {self.rows[load.name]} = {source} + {offset};"
        yield from self._output_rows("row * LENGTH")
        for name in self._in_order(self.kept):
            yield f"alignas(64) {c_type(self.dtypes[name])} {name}_kept[LENGTH];  // for a later pass"
        for number in range(self.passes.last + 1):
            yield from self._pass(number, "LENGTH")
        for store in self.kernel.stores:
            if store.domain is Domain.ROW:
                yield f"{self.outputs[store.target]}[row] = {store.value};"

    def _output_rows(self, offset: str) -> Iterator[str]:
        for store in self.kernel.stores:
            if store.domain is Domain.FULL:
                name = self.outputs[store.target]
                yield f"{c_type(store.spec.dtype)}* {self.output_rows[name]} = {name} + {offset};"

    def _pass(self, number: int, length: str) -> Iterator[str]:
        """One loop over the row, the reductions that it feeds, and the row's values that follow from them."""
        work = _Pass(
            number,
            reductions=[r for r in self.kernel.body if isinstance(r, Reduce) and self.passes.number[r.name] == number],
            stores=[s for s in self.kernel.stores if s.domain is Domain.FULL and self.passes.ready(s.value) == number],
            keeps=[name for name in self._in_order(self.kept) if self.passes.number[name] == number],
        )
        for reduction in work.reductions:
            yield from cpp_reduce.start(reduction, self.dtypes[reduction.arg], self.lanes)
        if work.reductions or work.stores or work.keeps:
            yield from self._loop(work, length)
        for reduction in work.reductions:
            yield from cpp_reduce.join(reduction, self.dtypes[reduction.arg], self.lanes)
        for line in self.kernel.body:
            if isinstance(line, Op) and line.domain is Domain.ROW and self.passes.number[line.name] == number:
                yield self._line(line)

    def _loop(self, work: _Pass, length: str) -> Iterator[str]:
        streamed = [s for s in work.stores if self.streams(s)]
        fetched = self.fetched if work.number == self.passes.last else []
        lanes = self.lanes
        if not (work.reductions or streamed or fetched):
            yield "#pragma omp simd"
            yield f"for (int64_t j = 0; j < {length}; ++j) {{"
            yield from _indented(self._element(work, "j"))
            yield "}"
            return
        yield f"for (int64_t j = 0; j + {lanes} <= {length}; j += {lanes}) {{"
        for load in fetched:
            yield from _indented(self._fetch(load))
        for store in streamed:
            yield f"    alignas(64) {c_type(store.spec.dtype)} {self.outputs[store.target]}_block[{lanes}];"
        yield "    #pragma omp simd"
        yield f"    for (int lane = 0; lane < {lanes}; ++lane) {{"
        yield from _indented(self._element(work, "j + lane", streamed), 2)
        yield "    }"
        for store in streamed:
            name = self.outputs[store.target]
            yield f"    stream({self.output_rows[name]} + j, {name}_block, {lanes});"
        yield "}"
        if self.layout.flat or self.layout.length % lanes:
            yield f"for (int64_t j = {length} / {lanes} * {lanes}, lane = 0; j < {length}; ++j, ++lane) {{"
            yield from _indented(self._element(work, "j"))
            yield "}"

    def _fetch(self, load: Load) -> Iterator[str]:
        ahead = self.layout.row_step(load)
        for lane in range(0, self.lanes, CACHE_LINE // _bytes(load.dtype)):
            place = f"{self.rows[load.name]} + {ahead} + j{f' + {lane}' if lane else ''}"
            yield f"__builtin_prefetch({place});{'' if lane else '  // the next row'}"

    def _element(self, work: _Pass, index: str, streamed: Iterable[Store] = ()) -> Iterator[str]:
        """What is done at one point of the row."""
        wanted = [r.arg for r in work.reductions] + [s.value for s in work.stores] + work.keeps
        needed = self.passes.needed(wanted, work.number, self.kept)
        for load in self.kernel.loads:
            if load.name in needed:
                yield f"const {c_type(load.dtype)} {load.name} = {self._read(load, index)};"
        for line in self.kernel.body:
            if line.name in needed and isinstance(line, Op):
                kept = line.name in self.kept and self.passes.number[line.name] < work.number
                yield (
                    f"const {c_type(line.dtype)} {line.name} = {line.name}_kept[{index}];" if kept else self._line(line)
                )
        for name in work.keeps:
            yield f"{name}_kept[{index}] = {name};"
        for reduction in work.reductions:
            yield from cpp_reduce.fold(reduction, self.dtypes[reduction.arg], index)
        for store in work.stores:
            name = self.outputs[store.target]
            target = f"{name}_block[lane]" if store in streamed else f"{self.output_rows[name]}[{index}]"
            yield f"{target} = {store.value};"

    def _read(self, load: Load, index: str) -> str:
        stride = (1 if any(load.strides) else 0) if self.layout.flat else self.layout.element_stride(load)
        if stride == 0:
            return f"{self.rows[load.name]}[0]"
        return f"{self.rows[load.name]}[{index}]" if stride == 1 else f"{self.rows[load.name]}[({index}) * {stride}]"

    def _line(self, op: Op) -> str:
        return f"const {c_type(op.dtype)} {op.name} = {expression(op, self.dtypes)};"

    def _row_start(self, load: Load, taken: set[str]) -> str:
        """The name of the pointer to a row's first element: the tensor's own where all rows start there."""
        moves = any(load.strides) if self.layout.flat else bool(self.layout.row_offset(load))
        source = self.inputs[load.source]
        return unused_name(f"{source}_row", taken) if moves and load.domain is Domain.FULL else source

    def _schedule(self, elements: int) -> str:
        if self.style.schedule == "static":
            return "schedule(static)"
        return f"schedule(dynamic, {max(1, CHUNK // elements)})"

    def streams(self, store: Store) -> bool:
        """Whether a store goes past the cache: whole vectors at aligned addresses, in every row."""
        aligned = self.layout.flat or self.layout.length % STREAM_VECTOR == 0
        fits = aligned and store.spec.dtype == "float32" and store.domain is Domain.FULL
        return self.style.stream and fits

    def _fetches(self, load: Load) -> bool:
        """Whether the next row of this input is worth fetching: memory is idle in a pass that reads the cache."""
        later = self.passes.last > 0 and load.domain is Domain.FULL
        return later and bool(self.layout.row_step(load)) and self.layout.element_stride(load) == 1

    def _in_order(self, names: set[str]) -> list[str]:
        return [line.name for line in self.kernel.body if line.name in names]


@dataclass(frozen=True)
class _Pass:
    """What one loop over the row is for."""

    number: int
    reductions: list[Reduce]
    stores: list[Store]
    keeps: list[str]


def _bytes(dtype: str) -> int:
    return {"float64": 8, "int64": 8, "bool": 1}.get(dtype, 4)


def _indented(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    for line in lines:
        yield "    " * levels + line if line else line
