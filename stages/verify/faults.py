"""Planted faults: wrong answers that a task's check must refuse, made from right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.verify import transforms
from kernelwright.stages.verify.cases import Case, copy_of, same_values
from kernelwright.stages.verify.oracle import Expected, Oracle, float_dtype
from kernelwright.stages.verify.tolerance import compare

Pair = tuple[Case, Expected]
Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Fault:
    """One kind of wrong candidate."""

    name: str
    answer: Callable[[Pair, Pair], Outputs | None]
    """What it would give for the first pair; the second is the case that came before. None: it does not apply."""


def canaries(precision: Precision, tolerance: float | None) -> Iterator[Fault]:
    """Answers that need no computing, or less precision than the contract asks for. All must be refused."""
    yield Fault("zeros", _each(torch.zeros_like))
    yield Fault("ones", _each(torch.ones_like))
    yield Fault("the mean everywhere", _each(_mean))
    yield Fault("an input copied", _copied)
    yield Fault("the previous answer again", lambda pair, before: _fitting(pair, before[1].eager))
    yield Fault("one element of the previous answer", _each_beside(_one_stale))
    yield Fault("the last row of the previous answer", _each_beside(_stale_row))
    yield Fault("one wrong element", _each(_one_wrong))
    yield Fault("shifted by one place", _each(lambda t: t.reshape(-1).roll(1).view(t.shape) if t.numel() > 1 else None))
    yield Fault("scaled by a little", _each(lambda t: _scaled(t, tolerance)))
    if precision is Precision.STRICT and not tolerance:
        yield Fault("rounded to bfloat16", _each(lambda t: _rounded(t, torch.bfloat16)))
        yield Fault("rounded to float16", _each(lambda t: _rounded(t, torch.float16)))


def mutants(oracle: Oracle, pairs: Sequence[Pair]) -> Iterator[Fault]:
    """The reference with one step of it left out: an argument, part of a row, a parameter, some digits."""
    first = pairs[0][0]
    initial = next((case.state for case, _ in pairs if case.label == "random 1"), first.state)
    for i, tensor in enumerate(first.tensors):
        if len(first.tensors) > 1:
            yield Fault(f"argument {i + 1} ignored", _run(oracle, _first_values(first, i)))
        if not tensor.is_floating_point() or tensor.dim() == 0 or tensor.shape[-1] < 2:
            continue
        yield Fault(f"half of each row of argument {i + 1} skipped", _run(oracle, _cut(i, tensor.shape[-1] // 2)))
        yield Fault(f"the last column of argument {i + 1} skipped", _run(oracle, _cut(i, tensor.shape[-1] - 1)))
        yield Fault(f"argument {i + 1} limited to six", _run(oracle, _limited(i)))
    if float_dtype(first).itemsize >= 4:
        yield Fault("arguments rounded to bfloat16", _run(oracle, _lowered))
    names = [n for n, t in first.state.items() if t.is_floating_point()]
    for name in names[:8]:
        yield Fault(f"{name} at its first value", _run(oracle, _first_state(initial, name)))


def refuses(pair: Pair, outputs: Outputs) -> bool:
    """Whether the case's comparison finds these outputs wrong."""
    _, expected = pair
    return not all(
        check.passed
        for i, output in enumerate(outputs)
        for check in compare("", output, expected.exact[i], expected.eager[i], expected.bounds[i])
    )


def equivalent(pair: Pair, outputs: Outputs) -> bool:
    """Whether a fault changed nothing here: its outputs are the reference's own, bit for bit."""
    return all(same_values(a, b) for a, b in zip(outputs, pair[1].eager, strict=True))


def _each(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Pair, Pair], Outputs | None]:
    def answer(pair: Pair, before: Pair) -> Outputs | None:
        changed = [change(t) for t in pair[1].eager]
        return tuple(t if c is None else c for c, t in zip(changed, pair[1].eager, strict=True))

    return answer


def _each_beside(
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Pair, Pair], Outputs | None]:
    def answer(pair: Pair, before: Pair) -> Outputs | None:
        stale = _fitting(pair, before[1].eager)
        return stale and tuple(change(t, s) for t, s in zip(pair[1].eager, stale, strict=True))

    return answer


def _fitting(pair: Pair, outputs: Outputs) -> Outputs | None:
    wanted = [(t.shape, t.dtype) for t in pair[1].eager]
    return outputs if [(t.shape, t.dtype) for t in outputs] == wanted else None


def _mean(t: torch.Tensor) -> torch.Tensor | None:
    return torch.full_like(t, t.double().mean().item()) if t.is_floating_point() and t.numel() > 1 else None


def _copied(pair: Pair, before: Pair) -> Outputs | None:
    case, expected = pair
    found = []
    for output in expected.eager:
        same = [t for t in case.tensors if t.shape == output.shape and t.dtype == output.dtype]
        if not same:
            return None
        found.append(same[0])
    return tuple(found)


def _one_stale(t: torch.Tensor, stale: torch.Tensor) -> torch.Tensor:
    """The element that differs most from the previous answer's, not renewed."""
    made = copy_of(t)
    if t.numel():
        off = (t.double() - stale.double()).abs().nan_to_num(0.0, 0.0, 0.0) if not t.is_complex() else (t - stale).abs()
        place = int(off.reshape(-1).argmax())
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), t.shape))
        made[index] = stale[index]
    return made


def _stale_row(t: torch.Tensor, stale: torch.Tensor) -> torch.Tensor:
    made = copy_of(t)
    if t.dim() and t.shape[0]:
        made[-1] = stale[-1]
    return made


def _one_wrong(t: torch.Tensor) -> torch.Tensor | None:
    """The largest element at half its size; an integer one off; a boolean the other way."""
    if not t.numel() or t.is_complex():
        return None
    made = copy_of(t)
    flat = t.reshape(-1)
    place = int(flat.double().abs().nan_to_num(0.0, 0.0, 0.0).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), t.shape))
    if t.dtype == torch.bool:
        made[index] = ~t[index]
    elif t.is_floating_point():
        made[index] = t[index] / 2
    else:
        made[index] = t[index] - 1 if t[index] else 1
    return made


def _scaled(t: torch.Tensor, tolerance: float | None) -> torch.Tensor | None:
    if not t.is_floating_point():
        return None
    return transforms.scaled(t, 1.0 + max(1e-2, 16 * torch.finfo(t.dtype).eps, 4 * (tolerance or 0.0)))


def _rounded(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    return t.to(dtype).to(t.dtype) if t.is_floating_point() and t.dtype.itemsize > dtype.itemsize else None


def _run(oracle: Oracle, change: Callable[[Case], Case]) -> Callable[[Pair, Pair], Outputs | None]:
    def answer(pair: Pair, before: Pair) -> Outputs | None:
        changed = change(pair[0])
        try:
            outputs = oracle.eager(changed)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None
        return _fitting(pair, outputs)

    return answer


def _with(case: Case, i: int, value: torch.Tensor) -> Case:
    return replace(case, tensors=(*case.tensors[:i], value, *case.tensors[i + 1 :]))


def _first_values(first: Case, i: int) -> Callable[[Case], Case]:
    fits = first.tensors[i].shape
    return lambda case: _with(case, i, first.tensors[i]) if case.tensors[i].shape == fits else case


def _cut(i: int, keep: int) -> Callable[[Case], Case]:
    def change(case: Case) -> Case:
        made = copy_of(case.tensors[i])
        made[..., keep:] = 0
        return _with(case, i, made)

    return change


def _limited(i: int) -> Callable[[Case], Case]:
    return lambda case: _with(case, i, case.tensors[i].clamp(-6, 6))


def _lowered(case: Case) -> Case:
    lowered = (t.bfloat16().to(t.dtype) if t.is_floating_point() else t for t in case.tensors)
    return replace(case, tensors=tuple(lowered))


def _first_state(initial: dict[str, torch.Tensor], name: str) -> Callable[[Case], Case]:
    return lambda case: replace(case, state=case.state | {name: initial[name]})
