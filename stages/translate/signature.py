"""The operator signature: what a graph computes, for which class of shapes, whatever its values are called.

`rms_norm[f32 a13xb9]#4f0c2a917b` is a readable start (the operators, then dtype and shape of the first tensor) and ten
hexadecimal digits of the SHA-256 of the whole canonical text. The text follows these rules:

- Values are numbered by a walk from the outputs to the inputs, operands first. So the names of values, the paths of
  parameters and the order of independent nodes do not matter, and nodes that nothing needs are left out.
- A dimension up to 16 stands as it is. A larger one becomes a letter, the same for equal dimensions, then the exponent
  of the power of two below it, then `r` (ragged) unless 16 divides it: 4096 is `a12`, 5000 is `a12r`.
- Integers in a list argument (a normalised shape, a view's shape) are dimensions. A single integer is taken exactly,
  unless it equals a dimension of the graph that is larger than 16. Floats and strings are taken exactly.
- Each value has its dtype and its shape; an input that is not contiguous also the order of its strides.
- Forward's arguments are told apart from the module's state, but parameters, buffers and constants are not.
"""

from __future__ import annotations

import hashlib

from kernelwright.stages.translate.graph import Arg, Dtype, Graph, Input, InputKind, Node, Ref, TensorSpec

_EXACT_UP_TO = 16
_OPERATORS_SHOWN = 4
VIEWS = {
    "getitem",
    "view",
    "reshape",
    "permute",
    "transpose",
    "unsqueeze",
    "squeeze",
    "expand",
    "flatten",
    "t",
    "select",
}
"""Operators that compute nothing: they are left out of what names or compares problems."""
_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
}


def signature(graph: Graph) -> str:
    """Return the graph's signature: equal for problems that the same kernel serves."""
    walk = _Walk(graph)
    digest = hashlib.sha256(walk.text.encode()).hexdigest()[:10]
    operators = [name for name in walk.operators if name not in VIEWS]
    shown = "+".join(operators[:_OPERATORS_SHOWN]) or "identity"
    if len(operators) > _OPERATORS_SHOWN:
        shown += f"+{len(operators) - _OPERATORS_SHOWN}"
    first = next((i for i in graph.inputs if i.kind is InputKind.ARGUMENT), None)
    return f"{shown}[{walk.spec(first.spec) if first else '-'}]#{digest}"


def canonical(graph: Graph) -> str:
    """Return the text whose hash the signature carries: one line a value, operands before users."""
    return _Walk(graph).text


def _write_backs(graph: Graph) -> list[tuple[str, str]]:
    owners = {i.target or i.name: i.name for i in graph.inputs}
    return [(value, owners[path]) for value, path in graph.mutated]


class _Walk:
    """Numbers values and dimensions in the order in which it meets them; `text` is the result."""

    def __init__(self, graph: Graph) -> None:
        self.operators: list[str] = []
        self._lines: list[str] = []
        self._numbers: dict[str, str] = {}
        self._letters: dict[int, str] = {}
        self._nodes = {node.name: node for node in graph.nodes}
        self._inputs = {i.name: i for i in graph.inputs}
        self._dimensions = {size for spec in graph.specs.values() for size in spec.shape if size > _EXACT_UP_TO}

        # The first argument has the first letters, so that a signature starts readably.
        for first in [i for i in graph.inputs if i.kind is InputKind.ARGUMENT][:1]:
            self.spec(first.spec)
        outputs = [self.arg(value) for value in graph.outputs]
        mutated = [self.value(name) + "->" + self.value(owner) for name, owner in _write_backs(graph)]
        self.text = "\n".join([*self._lines, f"return {graph.output_form} {' '.join(outputs)}", *mutated])

    def value(self, name: str) -> str:
        """The number of a value, for example `%3`; writes its line, after those of its operands, at first sight."""
        # A stack of our own, since a long chain of nodes would exhaust Python's.
        waiting = [name]
        while waiting:
            current = waiting[-1]
            operands = self._nodes[current].refs() if current in self._nodes else ()
            missing = [operand for operand in operands if operand not in self._numbers]
            if current in self._numbers or not missing:
                waiting.pop()
                self._write(current)
            else:
                waiting.append(missing[0])
        return self._numbers[name]

    def _write(self, name: str) -> None:
        if name in self._numbers:
            return
        line = self._node(self._nodes[name]) if name in self._nodes else self._input(self._inputs[name])
        self._numbers[name] = f"%{len(self._numbers)}"
        self._lines.append(f"{self._numbers[name]} = {line}")

    def _input(self, source: Input) -> str:
        kind = "argument" if source.kind is InputKind.ARGUMENT else "state"
        return f"{kind} {self.spec(source.spec)}{_layout(source.spec)}"

    def _node(self, node: Node) -> str:
        args = [self.arg(a) for a in node.args] + [f"{key}={self.arg(value)}" for key, value in node.kwargs]
        self.operators.append(node.op.split(".")[1] if "." in node.op else node.op)
        results = node.output if isinstance(node.output, tuple) else (node.output,)
        return f"{node.op}({', '.join(args)}) {' '.join(self.spec(r) if r else '-' for r in results)}"

    def arg(self, arg: Arg, in_list: bool = False) -> str:
        """An argument of a node, or one of the graph's outputs."""
        if isinstance(arg, Ref):
            return self.value(arg.name)
        if isinstance(arg, Dtype):
            return arg.name
        if isinstance(arg, tuple):
            return "(" + " ".join(self.arg(item, in_list=True) for item in arg) + ")"
        if isinstance(arg, int) and not isinstance(arg, bool) and (in_list or arg in self._dimensions):
            return self.dimension(arg)
        return repr(arg)

    def spec(self, spec: TensorSpec) -> str:
        """Dtype and shape, for example `f32 a12xb9`."""
        shape = "x".join(self.dimension(size) for size in spec.shape)
        return f"{_SHORT.get(spec.dtype, spec.dtype)} {shape or 'scalar'}"

    def dimension(self, size: int) -> str:
        """The class of one dimension."""
        if size <= _EXACT_UP_TO:
            return str(size)
        letter = self._letters.setdefault(size, _letter(len(self._letters)))
        return f"{letter}{size.bit_length() - 1}{'' if size % 16 == 0 else 'r'}"


def _letter(index: int) -> str:
    """The letters a to z, then aa, ab and so on (`r` is skipped: it marks a ragged dimension)."""
    alphabet = "abcdefghijklmnopqstuvwxyz"
    word = alphabet[index % len(alphabet)]
    return word if index < len(alphabet) else _letter(index // len(alphabet) - 1) + word


def _layout(spec: TensorSpec) -> str:
    if spec.contiguous:
        return ""
    order = sorted(range(len(spec.shape)), key=lambda d: (-spec.stride[d], d))
    repeated = [d for d in order if spec.stride[d] == 0 and spec.shape[d] != 1]
    return f" order{order}" + (f" repeated{repeated}" if repeated else "")
