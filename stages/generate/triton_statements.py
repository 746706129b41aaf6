"""Single statements of an emitted Triton kernel: loads, scalar functions and stores of one FusedKernel."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernelwright.stages.generate.formula import mathematics
from kernelwright.stages.generate.ir import FusedKernel, Load, Op, Operand, Reduce, Store
from kernelwright.stages.generate.triton_scalar import EXPRESSIONS, compute_dtype, literal, pointer_dtype

_TAKEN = {
    *(
        "tl",
        "triton",
        "range",
        "float",
        "row",
        "rows",
        "col",
        "lane",
        "start",
        "in_row",
        "in_rows",
        "i",
        "points",
        "mask",
    ),
    *("m", "n", "k", "acc", "left", "right", "tile", "tiles_n", "group", "in_group", "height", "batch", "inside"),
}
"""What emitted kernels call their own; a value of such a name gets an underscore behind it."""


@dataclass(frozen=True)
class Statements:
    """Writes one line at a time; where a block begins and which mask holds there is the caller's business."""

    kernel: FusedKernel
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Local values that the caller computes itself, under a name of its own."""

    @cached_property
    def names(self) -> dict[str, str]:
        """The Python identifier of each local value."""
        values = [v.name for v in (*self.kernel.loads, *self.kernel.body)]
        own = {value: f"{value}_" if value in _TAKEN or keyword.iskeyword(value) else value for value in values}
        return {**own, **self.renamed}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The graph values that are read, each once."""
        return tuple(dict.fromkeys(load.source for load in self.kernel.loads))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The graph values that are written."""
        return tuple(store.target for store in self.kernel.stores)

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The torch dtype in which each local value is held."""
        return {v.name: compute_dtype(v.dtype) for v in (*self.kernel.loads, *self.kernel.body)}

    def pointers(self) -> list[str]:
        """The kernel's pointer arguments, inputs before outputs."""
        return [pointer(value) for value in (*self.inputs, *self.outputs)]

    def load(self, load: Load, offset: str, mask: str) -> str:
        """Read at the offset; halves are widened, since they are computed in float32."""
        address = pointer(load.source) + (f" + {offset}" if offset else "")
        value = f"tl.load({address}{f', mask={mask}' if mask else ''})"
        if compute_dtype(load.dtype) != load.dtype:
            value += f".to({pointer_dtype(compute_dtype(load.dtype))})"
        return f"{self.names[load.name]} = {value}"

    def op(self, op: Op) -> str:
        """Apply the scalar function."""
        return f"{self.names[op.name]} = {self._expression(op)}"

    def store(self, store: Store, offset: str, mask: str) -> str:
        """Write at the offset, in the dtype of the target."""
        held = self.dtypes[store.value]
        value = self.names[store.value]
        if held != store.spec.dtype:
            value += f".to({pointer_dtype(store.spec.dtype)})"
        address = pointer(store.target) + (f" + {offset}" if offset else "")
        return f"tl.store({address}, {value}{f', mask={mask}' if mask else ''})"

    def operand(self, operand: Operand) -> str:
        """A local value's identifier, or a literal."""
        return self.names[operand] if isinstance(operand, str) else literal(operand)

    def _expression(self, op: Op) -> str:
        operands = [self.operand(arg) for arg in op.args]
        if op.fn == "cast":
            return self._cast(operands[0], self._declared[str(op.args[0])], op.dtype)
        if op.fn == "pow":
            operands = _as_values(op, operands)
        return EXPRESSIONS[op.fn].format(*operands, dtype=pointer_dtype(compute_dtype(op.dtype)))

    def _cast(self, value: str, dtype: str, target: str) -> str:
        if target == "bool":
            return f"{value} != 0"
        held, wanted = compute_dtype(dtype), compute_dtype(target)
        if wanted != target:
            # Rounded to the half that the reference asks for, and held in float32 again.
            return f"{value}.to({pointer_dtype(target)}).to({pointer_dtype(wanted)})"
        return value if held == wanted else f"{value}.to({pointer_dtype(wanted)})"

    @cached_property
    def _declared(self) -> dict[str, str]:
        return {v.name: v.dtype for v in (*self.kernel.loads, *self.kernel.body)}


def _as_values(op: Op, operands: list[str]) -> list[str]:
    """The operands with a number as a value of the other's shape: a helper that looks at bits needs a tensor.

    `tl.full` would do, but for a shape without dimensions the interpreter makes something else of it.
    """
    shape = next(text for arg, text in zip(op.args, operands, strict=True) if isinstance(arg, str))
    filled = f"tl.where({shape} == {shape}, {{0}}, {{0}})"
    return [text if isinstance(arg, str) else filled.format(text) for arg, text in zip(op.args, operands, strict=True)]


def pointer(value: str) -> str:
    """The pointer argument of a graph value."""
    return f"{value}_ptr"


def arguments(line: Op | Reduce) -> tuple[str, ...]:
    """The local values that the line reads."""
    operands = line.args if isinstance(line, Op) else (line.arg,)
    return tuple(operand for operand in operands if isinstance(operand, str))


def docstring(kernel: FusedKernel, summary: str) -> list[str]:
    """The kernel's docstring: how it runs, then what it computes."""
    return [f'"""{summary}', "", *(f"    {line}" for line in mathematics(kernel)), '"""']


def signature(name: str, parameters: list[str], constants: list[str]) -> list[str]:
    """The decorator and the `def` line, one parameter a line where they do not fit."""
    everything = [*parameters, *(f"{constant}: tl.constexpr" for constant in constants)]
    line = f"def {name}({', '.join(everything)}):"
    if len(line) <= 120:
        return ["@triton.jit", line]
    return ["@triton.jit", f"def {name}(", *(f"    {parameter}," for parameter in everything), "):"]


def indent(lines: list[str]) -> list[str]:
    """The lines one level deeper."""
    return [f"    {line}" if line else "" for line in lines]
