"""Run a reference in float64 although it names lower precisions itself, and see on the way what it does.

`a.bfloat16() @ b.bfloat16()` has a true answer too: the one without rounding. Every operator of the reference passes
through a dispatch mode that widens its floating arguments and the dtypes that it asks for, so that all is float64. The
rounding that the reference asks for is then its own error, and the bound follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

aten = torch.ops.aten

WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float8_e4m3fn: torch.float64,
    torch.float8_e5m2: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
"""What each lowered dtype becomes."""
PRODUCTS = {
    aten.mm,
    aten.bmm,
    aten.addmm,
    aten.baddbmm,
    aten.addbmm,
    aten.addmv,
    aten.mv,
    aten.dot,
    aten.linear,
    aten.convolution,
    aten._convolution,
}
"""Operators that hardware computes with operands rounded to TF32 where that is allowed."""
INDEXING = {
    aten.argmax: ("dim", None),
    aten.argmin: ("dim", None),
    aten.max: ("dim", None),
    aten.min: ("dim", None),
    aten.median: ("dim", None),
    aten.nanmedian: ("dim", None),
    aten.mode: ("dim", -1),
    aten.kthvalue: ("dim", -1),
    aten.topk: ("dim", -1),
    aten.sort: ("dim", -1),
    aten.cummax: ("dim", None),
    aten.cummin: ("dim", None),
    aten.max_pool2d_with_indices: (None, -2),
    aten.adaptive_max_pool2d: (None, -2),
    aten.max_pool3d_with_indices: (None, -3),
    aten.adaptive_max_pool3d: (None, -3),
}
"""Operators whose integer result says where values lie: the argument that names the dimension and its default. None for
the argument's name: positions count through the last dimensions, from the one given on."""
REPEATS = {aten.cummax, aten.cummin, aten.max_pool2d_with_indices, aten.max_pool3d_with_indices}
REPEATS |= {aten.adaptive_max_pool2d, aten.adaptive_max_pool3d}
"""Of these, the ones that may give one position several times."""
_SAME_ELEMENTS = {aten._to_copy, aten.clone, aten.view, aten._unsafe_view, aten.detach, aten.alias}
_SAME_ELEMENTS |= {aten.squeeze, aten.unsqueeze, aten._reshape_alias, aten.lift_fresh}
"""Operators that hand on all elements in their order."""
_BY_BITS = {aten.view.dtype}
"""Operators whose result depends on how numbers are stored: they have no wider form."""


class CannotUpcast(RuntimeError):
    """The reference does something that has no float64 form."""


@dataclass(frozen=True)
class Indexed:
    """Where an integer result points to: positions along `dim` of `source` (float64)."""

    source: torch.Tensor
    dim: int | None
    """None: positions count through all of `source`. With `flat`, through the dimensions from `dim` on."""
    flat: bool
    shape: tuple[int, ...]
    """The positions' shape with the indexed dimension in its place (of size 1 where it was reduced)."""
    distinct: bool
    """Whether one position may come only once along `dim`."""


class Upcasting(TorchDispatchMode):
    """Widen floating arguments and results of every operator. `tf32` rounds the operands of matrix products."""

    def __init__(self, *, tf32: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tf32 = tf32
        self.operators: set[str] = set()
        """Names of the operators that were called (`aten.mm.default`)."""
        self.random: bool = False
        """Whether one of them draws random numbers."""
        self._indexed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._twins: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def indexed(self, output: torch.Tensor) -> Indexed | None:
        """What an integer output of the reference points to, if an operator says so."""
        found: Indexed | None = self._indexed.get(output)
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _BY_BITS:
            raise CannotUpcast(f"{func} has no float64 form")
        self.operators.add(str(func))
        self.random |= _draws(func, args, kwargs or {})
        args, kwargs = tree_map(self._widen, (args, dict(kwargs or {})))
        packet = func.overloadpacket
        if packet is aten.div and not kwargs.get("rounding_mode"):
            # Of two integers torch makes a quotient in the default dtype.
            args = tree_map(_whole_to_double, args)
        if self.tf32 and packet in PRODUCTS:
            args = tree_map(lambda v: to_tf32(v) if _is_double(v) else v, args)
        result = tree_map(self._widen, func(*args, **kwargs))
        if packet in INDEXING:
            self._note(packet, func, args, kwargs, result)
        elif packet in _SAME_ELEMENTS and isinstance(result, torch.Tensor) and args[0] in self._indexed:
            self._indexed[result] = self._indexed[args[0]]
        return result

    def _widen(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value)
        if not isinstance(value, torch.Tensor) or value.dtype not in WIDE:
            return value
        # One twin for each tensor: what an operator writes into it is there when it is read again.
        if value not in self._twins:
            self._twins[value] = value.to(WIDE[value.dtype])
        return self._twins[value]

    def _note(self, packet: Any, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        indices = result if isinstance(result, torch.Tensor) else result[-1]
        if not isinstance(indices, torch.Tensor) or indices.dtype != torch.int64:
            return
        source = args[0]
        name, dim = INDEXING[packet]
        flat = name is None
        if name is not None:
            dim = _named(func, args, kwargs).get(name, dim)
        shape = list(indices.shape)
        if not flat and dim is not None and source.dim() > indices.dim():
            shape.insert(dim % source.dim(), 1)
        # Kept apart from the graph's own tensor, which the reference may go on to change.
        self._indexed[indices] = Indexed(
            source.detach().clone(), dim, flat, tuple(shape), packet not in REPEATS and not flat
        )


def _draws(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers: attention can, but does not with a dropout of 0."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    given = _named(func, args, kwargs)
    return bool(given.get("dropout_p", given.get("p", 1.0)) != 0.0)


def _named(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, those with a default that were left out too."""
    schema = func._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return defaults | dict(zip([a.name for a in schema], args, strict=False)) | dict(kwargs)


def to_tf32(value: torch.Tensor) -> torch.Tensor:
    """Drop the bits below TF32's ten of the mantissa, as a matrix unit does that is handed float32; float64 again.

    Cutting off errs up to twice as much as rounding to nearest, so it bounds both.
    """
    bits = value.float().view(torch.int32).bitwise_and(~0x1FFF)
    return bits.view(torch.float32).double()


def _whole_to_double(value: Any) -> Any:
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
    return value.double() if whole else value


def _is_double(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64
