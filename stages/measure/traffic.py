"""What a call of the reference must at least move and compute: the figures that the speed of light is made of.

Both are lower bounds that no honest kernel can go under. An input counts only when the answer depends on it nearly
everywhere, as probes of the reference show: an embedding's table, of which a call reads a few rows, counts nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.stages.measure.roofline import CACHE_TIMES
from kernelwright.stages.measure.stats import upper_bound
from kernelwright.stages.sandbox import tree
from kernelwright.stages.verify.cases import Case

PROBES = 64
"""Random elements of an input that are tried, each on its own. When all move the answer, the input counts whole: one of
which 93 % or less matters passes in fewer than 1 % of problems."""
FEW_PROBES = 8
"""Where the traffic is too little to refuse anything, and the bound is only shown."""
MOST_MISSES = 0.1
"""With a larger share of elements that do not matter, an input counts nothing. Up to it, it counts for the share that
is sure to matter: a query of causal attention is read but for its first row."""
HUGE = 1e4
"""Probes set an element to this many times the input's largest magnitude, with either sign."""
WORTH_PROBING = 0.01
"""An input with a smaller share of all bytes is left out."""
BUDGET_S = 10.0
"""Probing ends after this long; what has not been shown to matter is left out."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Traffic:
    """What one call moves at least."""

    read: dict[str, int]
    """Bytes by input that every answer needs whole: `argument 0`, or a parameter's name."""
    written: int
    """Bytes of outputs that are computed: not views of inputs, and not constant."""

    @property
    def bytes_least(self) -> int:
        """Each needed input read once, each output written once."""
        return sum(self.read.values()) + self.written


def traffic(model: torch.nn.Module, case: Case, cache_bytes: int, *, budget_s: float = BUDGET_S) -> Traffic:
    """Probe the reference on a case: which inputs does its answer depend on nearly everywhere?

    `cache_bytes` is the size of the last-level cache. The model's state is left as the case gives it.
    """
    with _Reference(model, case) as reference:
        probing = _Probing(reference, random.Random(0), time.monotonic() + budget_s)
        inputs = reference.inputs()
        most = sum(stored_bytes(t) for t in (*inputs.values(), *probing.base))
        probes = PROBES if most > CACHE_TIMES * cache_bytes else FEW_PROBES
        read = {
            name: int(stored_bytes(tensor) * probing.share(name, probes))
            for name, tensor in inputs.items()
            if stored_bytes(tensor) >= WORTH_PROBING * most
        }
        return Traffic({name: nbytes for name, nbytes in read.items() if nbytes}, probing.written())


def flops(model: torch.nn.Module, case: Case) -> int:
    """Floating-point operations of one call, by torch's FlopCounterMode on fake tensors: a multiply-add is two.

    Matrix products, convolutions and attention count (a causal mask saves nothing here); the rest is 0.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            return _count(model, case, [fake.from_tensor(t) for t in case.tensors])
    except (RuntimeError, TypeError, NotImplementedError):
        # A reference that looks at values cannot run without them.
        with _Reference(model, case) as reference:
            return _count(model, case, reference.tensors)


def stored_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's distinct elements: what a stride of 0 repeats is stored once."""
    distinct = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        distinct *= size if stride != 0 or size == 0 else 1
    return distinct * tensor.element_size()


def _count(model: torch.nn.Module, case: Case, tensors: Sequence[torch.Tensor]) -> int:
    # Attention is counted as its two matrix products: the CPU's fused kernel is not in torch's table of counts.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(*case.arguments(tensors))
    return int(counter.get_total_flops())


class _Probing:
    """Sets elements of the reference's inputs, one at a time, and looks at what moves."""

    def __init__(self, reference: _Reference, source: random.Random, deadline: float) -> None:
        self.reference = reference
        self.source = source
        self.deadline = deadline
        outputs = reference.outputs()
        self.base = [output.clone() for output in outputs]
        self.sizes = [0 if reference.is_view(output) else stored_bytes(output) for output in outputs]
        for i, output in enumerate(outputs):
            if any(output.data_ptr() == earlier.data_ptr() for earlier in outputs[:i]):
                self.sizes[i] = 0
        # An output that differs without a cause (atomic additions) cannot show an effect.
        self.steady = [_same(a, b) for a, b in zip(self.base, reference.outputs(), strict=True)]
        self.moved = [False] * len(self.base)

    def share(self, name: str, probes: int) -> float:
        """The share of an input's elements that surely moves the answer; 0 where it is not nearly all of them."""
        tensor = self.reference.inputs()[name]
        if tensor.numel() == 0:
            return 0.0
        huge = _huge(tensor)
        misses = 0
        for _ in range(probes):
            misses += not self._moves(name, tensor, huge)
            if misses > MOST_MISSES * probes or time.monotonic() > self.deadline:
                return 0.0
        return 1.0 if misses == 0 else 1.0 - upper_bound(misses, probes)

    def written(self) -> int:
        """Bytes of the outputs that some probe moved: each once, and views of inputs left out."""
        return sum(size for size, moved in zip(self.sizes, self.moved, strict=True) if moved)

    def _moves(self, name: str, tensor: torch.Tensor, huge: float) -> bool:
        place = self._place(tensor)
        for value in self._values(tensor, place, huge):
            with self.reference.changed(name, place, value):
                outputs = self.reference.outputs()
                # Compared here: an output may be a view of the input that is about to be put back.
                effects = [
                    steady and not _same(output, before)
                    for output, before, steady in zip(outputs, self.base, self.steady, strict=True)
                ]
            self.moved = [old or new for old, new in zip(self.moved, effects, strict=True)]
            if any(effects):
                return True
        return False

    def _place(self, tensor: torch.Tensor) -> tuple[int, ...]:
        return tuple(self.source.randrange(size) for size in tensor.shape)

    def _values(self, tensor: torch.Tensor, place: tuple[int, ...], huge: float) -> Sequence[float]:
        """What to set a place to, most telling first."""
        if tensor.is_floating_point():
            return huge, -huge
        if tensor.is_complex():
            return ()
        # Integers may be indices: only values that the tensor holds are known to be in range.
        present = tensor[place].item()
        held = [tensor[self._place(tensor)].item() for _ in range(4)]
        return [float(not present)] if tensor.dtype == torch.bool else [v for v in held if v != present][:1]


def _huge(tensor: torch.Tensor) -> float:
    """A value beside which the tensor's own are small."""
    if not tensor.is_floating_point():
        return 0.0
    largest = float(torch.nan_to_num(tensor, posinf=0.0, neginf=0.0).abs().max())
    return min(HUGE * (largest or 1.0), torch.finfo(tensor.dtype).max / 4)


class _Reference:
    """The reference on private copies of a case's tensors, each call from the same state."""

    def __init__(self, model: torch.nn.Module, case: Case) -> None:
        self.model = model
        self.case = case
        self._probe: tuple[str, tuple[int, ...], float] | None = None

    def __enter__(self) -> _Reference:
        self.model.load_state_dict(self.case.state)
        self.tensors = [t.clone() for t in self.case.tensors]
        given = {f"argument {i}": t for i, t in enumerate(self.case.tensors)} | self.case.state
        mine = {f"argument {i}": t for i, t in enumerate(self.tensors)} | self.model.state_dict()
        self._given = {name: given[name] for name, t in mine.items() if isinstance(t, torch.Tensor)}
        self._mine = {name: mine[name] for name in self._given}
        self._versions = {name: t._version for name, t in self._mine.items()}
        return self

    def __exit__(self, *exception: object) -> None:
        self.model.load_state_dict(self.case.state)

    def inputs(self) -> dict[str, torch.Tensor]:
        """Whatever the answer may depend on, each piece of memory once.

        Without arguments that repeat elements (a stride of 0): what must be read of their copies is not plain.
        """
        found: dict[str, torch.Tensor] = {}
        seen = set()
        for name, given in self._given.items():
            if given.data_ptr() not in seen and stored_bytes(given) == stored_bytes(self._mine[name]):
                found[name] = self._mine[name]
            seen.add(given.data_ptr())
        return found

    def outputs(self) -> list[torch.Tensor]:
        """One call, from the case's state and always the same seed."""
        self._put_back()
        devices = [t.device for t in self.tensors[:1] if t.is_cuda]
        found: list[torch.Tensor] = []
        with torch.random.fork_rng(devices), torch.no_grad():
            torch.manual_seed(0)
            tree.flatten(self.model(*self.case.arguments(self.tensors)), found)
        return [t.detach() for t in found]

    def is_view(self, output: torch.Tensor) -> bool:
        """Whether the output is memory that was there before the call, and that the call did not write."""
        owners = {t.untyped_storage().data_ptr(): name for name, t in self._mine.items()}
        owner = owners.get(output.untyped_storage().data_ptr())
        return owner is not None and self._mine[owner]._version == self._versions[owner]

    @contextmanager
    def changed(self, name: str, place: tuple[int, ...], value: float) -> Iterator[None]:
        """One element of an input, set to a value for as long as this lasts."""
        before = self._mine[name][place].item()
        self._probe = (name, place, value)
        self._set(name, place, value)
        try:
            yield
        finally:
            self._probe = None
            self._put_back()
            self._set(name, place, before)

    def _set(self, name: str, place: tuple[int, ...], value: float) -> None:
        self._mine[name][place] = value
        self._versions[name] = self._mine[name]._version

    def _put_back(self) -> None:
        """Undo what a call wrote into its inputs or into the model's state. The reference's own writes are counted."""
        for name, tensor in self._mine.items():
            if tensor._version != self._versions[name]:
                tensor.copy_(self._given[name])
                self._versions[name] = tensor._version
                if self._probe is not None and self._probe[0] == name:
                    self._set(*self._probe)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits: not a number equals itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point():
        bits = _INTEGERS[a.element_size()]
        a, b = a.view(bits), b.view(bits)
    return torch.equal(a, b)
