"""The right answer: the reference in float64, and beside it the reference as it is, whose own error sets the bound."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.sandbox import tree
from kernelwright.stages.verify.cases import Case, copy_of, same_values
from kernelwright.stages.verify.domains import checked_on_device
from kernelwright.stages.verify.indices import index_rule
from kernelwright.stages.verify.tolerance import TF32_FACTOR, Allowance, Bounds, yardstick
from kernelwright.stages.verify.upcast import WIDE, CannotUpcast, Upcasting

ROUNDED_EPS = 4.0
"""Stressed cases: by how many epsilons each input is moved, up or down, to see what rounding it would do."""


FAR_ABOVE_FLOAT32 = 2e-5
"""A root mean square error, over the output's, that float32 products of any usual length stay under."""
ABOUT = 4.0


@dataclass(frozen=True)
class Expected:
    """Outputs of one case. `exact[i]` is float64 (or the integers themselves), `eager[i]` the task's own precision."""

    structure: Any
    exact: tuple[torch.Tensor, ...]
    eager: tuple[torch.Tensor, ...]
    bounds: tuple[Bounds, ...]
    """How far each output may be from `exact`."""
    inputs_after: tuple[torch.Tensor, ...]
    """The arguments' tensors after the reference's call: equal to the ones before, unless it works in place."""

    in_place: bool = False
    state_after: dict[str, tuple[torch.Tensor, torch.Tensor, Bounds]] = field(default_factory=dict)
    """What the reference changes of its state (running statistics in training), by name: exact, eager, bounds."""
    aliases: tuple[int | None, ...] = ()
    """For each output, the number of the argument's tensor whose memory it shares in the reference, or None."""
    random: bool = False
    """Whether the reference calls an operator that draws random numbers."""
    operators: frozenset[str] = frozenset()
    """Names of the operators that the reference calls."""
    precision: str = "float64"
    """The oracle's: `float64`, or `float32` where the reference has no float64 form or that did not fit."""
    limit: float = 0.0
    """The largest of eager's own rms errors, in units of the output's rms: near 1, the case can tell nothing."""

    @property
    def changes_state(self) -> bool:
        """Whether a call leaves parameters or buffers changed."""
        return bool(self.state_after)

    @property
    def nbytes(self) -> int:
        """Bytes that holding this takes."""
        return sum(t.numel() * t.element_size() for t in (*self.exact, *self.eager, *self.inputs_after))


class Oracle:
    """Answers for the cases of one reference; holds its float64 twin, so that it is made once."""

    def __init__(
        self, model: torch.nn.Module, tolerance: float | None, precision: Precision = Precision.STRICT
    ) -> None:
        self.model = model
        self.tolerance = tolerance
        self.precision = precision
        self._wide: torch.nn.Module | None = None
        self._lowers: bool | None = None
        """Whether the reference itself rounds operands to TF32, as one that sets allow_tf32 does; None: not known."""

    def expect(self, case: Case) -> Expected:
        """Run the reference on a case in its own precision and in float64, and derive the bounds."""
        inputs = [copy_of(t) for t in case.tensors]
        structure, eager, eager_state = _call(self.model, case, inputs)
        changed = [not same_values(now, before) for now, before in zip(inputs, case.tensors, strict=True)]
        after = tuple(now if c else t for now, c, t in zip(inputs, changed, case.tensors, strict=True))
        aliases = tuple(_alias(output, inputs) for output in eager)
        wide = self._wide_call(case, case.tensors)
        if wide is not None and not _alike(wide[0], eager):
            wide = None
        precision = "float32" if wide is None else "float64"
        exact, exact_state, mode = wide if wide is not None else (eager, eager_state, Upcasting())
        pointed = [
            mode.indexed(t) if not own.is_floating_point() else None for t, own in zip(exact, eager, strict=True)
        ]
        exact, eager = [widened(t.detach()) for t in exact], [t.detach() for t in eager]
        if self._lowers is None and precision == "float64" and not (case.stressed or case.specials):
            self._lowers = self._computes_in_tf32(case, exact, eager)
        ranged = checked_on_device(mode.operators)
        allowed = self._allowances(case, ranged=ranged) if precision == "float64" else []
        bounds: list[Bounds] = []
        for i, (right, own) in enumerate(zip(exact, eager, strict=True)):
            place = pointed[i]
            rule = index_rule(place, right, own, float_dtype(case)) if place is not None else None
            bounds.append(
                rule or self._yardstick(case, right, own, precision, [Allowance(a[i], f) for a, f in allowed])
            )
        state_after = {
            name: (right, eager_state[name], self._yardstick(case, right, eager_state[name], precision, []))
            for name, right in ((n, widened(exact_state.get(n, eager_state[n]))) for n in eager_state)
            if not same_values(eager_state[name], case.state[name])
        }
        return Expected(
            structure,
            tuple(exact),
            tuple(eager),
            tuple(bounds),
            after,
            in_place=any(changed),
            state_after=state_after,
            aliases=aliases,
            random=mode.random,
            operators=frozenset(mode.operators),
            precision=precision,
            limit=max((getattr(b, "own", 0.0) for b in bounds), default=0.0),
        )

    def eager(self, case: Case) -> tuple[torch.Tensor, ...]:
        """The reference's outputs in its own precision, and nothing else."""
        _, outputs, _ = _call(self.model, case, [copy_of(t) for t in case.tensors])
        return tuple(t.detach() for t in outputs)

    def _yardstick(
        self, case: Case, exact: torch.Tensor, eager: torch.Tensor, precision: str, allowed: Sequence[Allowance]
    ) -> Bounds:
        terms = max((t.numel() for t in case.tensors), default=1) // max(eager.numel(), 1)
        kept = tuple(a for a in allowed if a.answer.shape == exact.shape)
        return yardstick(
            exact,
            eager,
            precision,
            self.tolerance,
            self.precision,
            terms=terms,
            allowances=kept,
            lenient=case.specials,
        )

    def _allowances(self, case: Case, *, ranged: bool) -> list[tuple[list[torch.Tensor], float]]:
        """The oracle's answers under what may be rounded: inputs in stressed cases, operands where TF32 is allowed.

        `ranged`: inputs must not leave the range of their values, as a probability below 0 would end the device's
        context.
        """
        answers = []
        if case.stressed and not case.specials:
            moved = self._wide_call(case, [_rounded(t, seed, ranged=ranged) for seed, t in enumerate(case.tensors)])
            answers += [] if moved is None else [(moved[0], 1.0)]
        if self.precision is Precision.TF32 or self._lowers:
            lowered = self._wide_call(case, case.tensors, tf32=True)
            answers += [] if lowered is None else [(lowered[0], TF32_FACTOR)]
        return answers

    def _computes_in_tf32(self, case: Case, exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> bool:
        """Whether eager's own error is far above float32's and about what operands in TF32 cause.

        Another kernel may then cut operands off where eager rounds them, which errs by more than a small multiple.
        """
        own = [_relative_rms(e, x) for e, x in zip(eager, exact, strict=True) if e.dtype == torch.float32]
        if max(own, default=0.0) < FAR_ABOVE_FLOAT32:
            return False
        lowered = self._wide_call(case, case.tensors, tf32=True)
        if lowered is None:
            return False
        theirs = [_relative_rms(t, x) for t, x in zip(lowered[0], exact, strict=True) if x.dtype == torch.float64]
        return max(own) < ABOUT * max(theirs, default=0.0)

    def _wide_call(
        self, case: Case, tensors: Sequence[torch.Tensor], *, tf32: bool = False
    ) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], Upcasting] | None:
        """(outputs, state after, what was seen) in float64, or None where that cannot be."""
        mode = Upcasting(tf32=tf32)
        try:
            if self._wide is None:
                self._wide = copy.deepcopy(self.model).double()
            _, outputs, state = _call(self._wide, case, [widened(t) for t in tensors], mode)
        except (CannotUpcast, RuntimeError, TypeError, NotImplementedError, torch.OutOfMemoryError):
            return None
        return outputs, state, mode


def expect(
    model: torch.nn.Module, case: Case, tolerance: float | None, precision: Precision = Precision.STRICT
) -> Expected:
    """One case's answer. The model's state is left as the case gives it.

    Args:
        model: The reference, on the case's device.
        case: The call.
        tolerance: The task's own, if it states one.
        precision: The task's contract.
    """
    return Oracle(model, tolerance, precision).expect(case)


def widened(value: torch.Tensor) -> torch.Tensor:
    """A copy, in float64 or complex128 where the dtype is narrower; integers and booleans as they are."""
    return copy_of(value, WIDE.get(value.dtype, value.dtype))


def _call(
    model: torch.nn.Module, case: Case, inputs: list[torch.Tensor], mode: Upcasting | None = None
) -> tuple[Any, list[torch.Tensor], dict[str, torch.Tensor]]:
    """(structure, outputs, what the call changed of the state). The state is put back afterwards."""
    model.load_state_dict(case.state)
    before = {name: (id(t), t._version) for name, t in model.state_dict(keep_vars=True).items()}
    outputs: list[torch.Tensor] = []
    with torch.no_grad(), mode or contextlib.nullcontext():
        structure = tree.flatten(model(*case.arguments(inputs)), outputs)
    changed = {
        name: t.detach().clone()
        for name, t in model.state_dict(keep_vars=True).items()
        if before[name] != (id(t), t._version) or not _kept(t, case.state[name])
    }
    if changed:
        model.load_state_dict(case.state)
    return structure, outputs, changed


def _kept(value: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether a buffer is as it was: batch norm writes its statistics without counting up the version."""
    return isinstance(value, torch.nn.Parameter) or same_values(value, before.to(value.dtype))


def _relative_rms(value: torch.Tensor, exact: torch.Tensor) -> float:
    scale = float(exact.double().square().mean().sqrt()) if exact.numel() else 0.0
    error = float((value.double() - exact.double()).square().mean().sqrt()) if exact.numel() else 0.0
    return error / scale if scale and error == error else 0.0


def _alike(exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> bool:
    """Whether both runs gave the same number of tensors, of the same shapes, floating in the same places."""
    return [(t.shape, t.is_floating_point()) for t in exact] == [(t.shape, t.is_floating_point()) for t in eager]


def _alias(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> int | None:
    where = output.untyped_storage().data_ptr()
    return next((i for i, t in enumerate(inputs) if where and t.untyped_storage().data_ptr() == where), None)


def _rounded(value: torch.Tensor, seed: int, *, ranged: bool) -> torch.Tensor:
    """Each element moved by `ROUNDED_EPS` epsilons up or down, and by what flushing denormals would take away.

    `ranged`: not below the least nor above the largest element.
    """
    if not value.is_floating_point() or value.numel() == 0:
        return value
    kind = torch.finfo(value.dtype)
    generator = torch.Generator(device=value.device).manual_seed(seed)
    sign = torch.randint(0, 2, value.shape, generator=generator, device=value.device, dtype=torch.int8).double()
    sign.mul_(2.0).sub_(1.0)
    moved = value.double().mul_(1.0 + ROUNDED_EPS * kind.eps * sign).add_(kind.tiny * sign)
    return moved.clamp_(value.min().double(), value.max().double()) if ranged else moved


def float_dtype(case: Case) -> torch.dtype:
    """The narrowest floating dtype among the arguments and the parameters: what the task computes in."""
    kinds = [t.dtype for t in (*case.tensors, *case.state.values()) if t.is_floating_point()]
    return min(kinds, key=lambda kind: kind.itemsize, default=torch.float32)
