"""Writing a fused kernel's body: loads, scalar functions, reductions, with names, dtypes and domains kept in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from kernelwright.stages.generate.ir import Domain, Load, Op, Operand, Reduce
from kernelwright.stages.generate.scalar import is_float, kind, promote
from kernelwright.stages.translate.graph import Arg, Ref, TensorSpec

NUMBERS = {bool: "bool", int: "int64", float: "float32"}
"""The dtypes that torch gives Python's numbers."""


class Body:
    """The lines of one kernel over `space`, whose trailing `reduced` dimensions form a row."""

    def __init__(self, space: tuple[int, ...], reduced: int, specs: Mapping[str, TensorSpec]) -> None:
        self.space = space
        self.reduced = reduced
        self.specs = specs
        self.loads: dict[str, Load] = {}
        self.lines: list[Op | Reduce] = []
        self.locals: dict[str, Operand] = {}
        """What each graph value that the kernel computes is called here."""
        self.dtype = "float32"
        """Of the output of the node that is being written."""
        self.flat_rows = False
        """Whether the node being written has one value a row and no trailing dimensions of size 1."""
        self._dtypes: dict[str, str] = {}
        self._domains: dict[str, Domain] = {}
        self._known: dict[tuple[object, ...], str] = {}

    @property
    def row_length(self) -> int:
        """Elements of a row."""
        return math.prod(self.space[len(self.space) - self.reduced :])

    def value(self, arg: Arg, dtype: str) -> Operand:
        """An argument as an operand of `dtype`: a literal, a local value, or a load; cast where it must be."""
        if isinstance(arg, Ref):
            name = self.locals[arg.name] if arg.name in self.locals else self._load(arg.name)
            return self.cast(name, dtype)
        if isinstance(arg, bool | int | float):
            return self._literal(arg, dtype)
        raise TypeError(f"{arg!r} is no value of a kernel")

    def cast(self, operand: Operand, dtype: str) -> Operand:
        """The operand in another dtype."""
        if not isinstance(operand, str):
            return self._literal(operand, dtype)
        return operand if self._dtypes[operand] == dtype else self.op("cast", operand, dtype=dtype)

    def _literal(self, number: bool | int | float, dtype: str) -> Operand:
        if is_float(dtype):
            return float(number)
        return bool(number) if dtype == "bool" else int(number)

    def op(self, fn: str, *operands: Operand, dtype: str | None = None) -> Operand:
        """One line, in the node's dtype unless another is given; an equal line that stands already is used again."""
        dtype = dtype or self.dtype
        full = any(isinstance(a, str) and self._domains[a] is Domain.FULL for a in operands)
        domain = Domain.FULL if full or self.reduced == 0 else Domain.ROW
        # True == 1 == 1.0 in Python, but not in a kernel.
        key = (fn, *((type(a), a) for a in operands), dtype)
        if key not in self._known:
            name = self._new(fn, dtype, domain)
            self.lines.append(Op(name, fn, operands, dtype, domain))
            self._known[key] = name
        return self._known[key]

    def reduce(self, fn: str, operand: Operand, *, dtype: str | None = None) -> str:
        """One reduction over the row, in the node's dtype unless another is given."""
        assert isinstance(operand, str)
        dtype = dtype or self.dtype
        key = ("reduce", fn, operand, dtype)
        if key not in self._known:
            name = self._new(f"row_{fn}", dtype, Domain.ROW)
            self.lines.append(Reduce(name, fn, operand, dtype))
            self._known[key] = name
        return self._known[key]

    def common_dtype(self, args: tuple[Arg, ...]) -> str:
        """The dtype in which torch compares these arguments.

        A number, or a tensor without dimensions beside others, counts only where it is of a higher kind.
        """
        specs = [self.specs[a.name] for a in args if isinstance(a, Ref)]
        whole = [s.dtype for s in specs if s.shape] or [s.dtype for s in specs]
        dtype = reduce(promote, whole)
        numbers = [NUMBERS[type(a)] for a in args if isinstance(a, bool | int | float)]
        for other in (*(s.dtype for s in specs), *numbers):
            if kind(other) > kind(dtype):
                dtype = other
        return dtype

    def domain(self, name: str) -> Domain:
        """Where a local value lives."""
        return self._domains[name]

    def _load(self, source: str) -> str:
        if source not in self.loads:
            spec = self.specs[source]
            strides = broadcast_strides(spec, self.space, self.reduced, self.flat_rows)
            if self.reduced == 0:
                domain = Domain.FULL
            else:
                domain = Domain.FULL if any(strides[len(self.space) - self.reduced :]) else Domain.ROW
            name = self._new(f"in_{source}", spec.dtype, domain)
            self.loads[source] = Load(name, source, spec.dtype, strides, domain)
        return self.loads[source].name

    def _new(self, wish: str, dtype: str, domain: Domain) -> str:
        name, number = wish, 1
        while name in self._dtypes:
            number += 1
            name = f"{wish}_{number}"
        self._dtypes[name], self._domains[name] = dtype, domain
        return name


def broadcast_strides(spec: TensorSpec, space: tuple[int, ...], reduced: int, flat_rows: bool) -> tuple[int, ...]:
    """Strides of a tensor over the space: 0 in each dimension along which it is repeated.

    `flat_rows`: the tensor broadcasts against one value a row, without the row's own dimensions.
    """
    target = space[: len(space) - reduced] if flat_rows else space
    missing = len(target) - len(spec.shape)
    strides = [0] * missing + [0 if size == 1 else stride for size, stride in zip(spec.shape, spec.stride, strict=True)]
    return (*strides, *([0] * reduced)) if flat_rows else tuple(strides)
