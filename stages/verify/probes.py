"""What one candidate is tried on: random cases, and structured ones that each make one kind of mistake visible.

A probe is kept only if it can tell right from wrong: the reference must accept it, give a finite answer, and not itself
be far off. What is dropped is said with the reason. Everything follows from the seed, the order too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from kernelwright.kernelbench.contract import Contract
from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.verify import memory_needs, transforms
from kernelwright.stages.verify.cases import Case, draw, same_form, tied
from kernelwright.stages.verify.domains import Kind, checked_on_device, domain
from kernelwright.stages.verify.layouts import other_layouts, other_shapes
from kernelwright.stages.verify.oracle import Expected, Oracle
from kernelwright.stages.verify.structured import PROBES, Probe
from kernelwright.stages.verify.tolerance import Yardstick

RANDOM_CASES = 5
FEW_RANDOM_CASES = 3
MANY_BYTES = {"cpu": 2**23, "cuda": 2**30}
"""Arguments and outputs of one case beyond this make the random cases few."""
LARGE_BYTES = {"cpu": 2**28, "cuda": 2**33}
"""Beyond this only the probes that catch most are kept."""
PARAMETERS = 4
"""How many parameters and buffers are changed each on its own, drawn by chance where there are more."""
BUDGET = 0.4
"""Share of the free memory that arguments and answers of all cases may take; two random cases there are always."""
USELESS = 0.25
"""An rms bound, in units of the output's rms, beyond which a case can tell nothing."""
LEAST_FINITE = 0.1
"""Share of the answer that must be finite where the arguments hold nan and inf."""
LARGE_FACTORS = (2.0**40, 2.0**20, 2.0**10, 2.0**6)
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError, AssertionError, NotImplementedError)
"""What a reference may raise for arguments that it does not accept."""


@dataclass(frozen=True)
class Plan:
    """The series for one candidate, in the order in which it is run."""

    cases: tuple[Case, ...]
    expected: tuple[Expected, ...]
    """The cases' answers."""
    dropped: tuple[str, ...]
    """Probes that tell nothing for this task, each with the reason."""

    @property
    def pairs(self) -> list[tuple[Case, Expected]]:
        """Cases with their answers."""
        return list(zip(self.cases, self.expected, strict=True))


def plan(
    contract: Contract,
    model: torch.nn.Module,
    device: str,
    seed: int,
    *,
    thorough: bool = True,
    precision: Precision | None = None,
    oracle: Oracle | None = None,
) -> Plan:
    """Draw the series of cases and work out their answers.

    Args:
        contract: The task.
        model: Its reference, on `device`.
        device: `cpu` or `cuda`.
        seed: Everything is drawn from it.
        thorough: False leaves only the probes that catch most.
        precision: The contract, where it is not the task's own.
        oracle: Where the caller has one for this model already.
    """
    oracle = oracle or Oracle(model, contract.tolerance, precision or contract.precision)
    return _Planner(contract, model, device, seed, oracle).plan(thorough)


@dataclass
class _Planner:
    contract: Contract
    model: torch.nn.Module
    device: str
    seed: int
    oracle: Oracle
    kept: list[list[tuple[Case, Expected]]] = field(default_factory=list)
    """Groups: a case, and those that follow it in the same buffers."""
    dropped: list[str] = field(default_factory=list)
    held: int = 0
    """Bytes of the arguments and answers so far."""

    def plan(self, thorough: bool) -> Plan:
        self.generator = torch.Generator(device=self.device).manual_seed(self.seed)
        self.random = random.Random(self.seed)
        first = draw(self.contract, self.device, self.seed, self.model, jitter=False)
        answer = self.oracle.expect(replace(first, label="random 1", why=RANDOM_WHY))
        self.whole = answer
        # The arguments afterwards are the arguments themselves, unless the reference changes them.
        self.need = answer.nbytes + (first.nbytes if answer.in_place else 0)
        self.budget = int(BUDGET * memory_needs.memory(self.device)[1])
        nbytes, kind = first.nbytes + sum(t.nbytes for t in answer.eager), torch.device(self.device).type
        short = nbytes > LARGE_BYTES[kind] or not thorough
        self._draw(first, answer, FEW_RANDOM_CASES if nbytes > MANY_BYTES[kind] else RANDOM_CASES)
        self._interior(1 if short else 2)
        for probe in PROBES:
            if probe.short or not short:
                self._probe(probe)
        self._very_large()
        self._huge()
        self._arguments()
        self._state(2 if short else PARAMETERS)
        if not short:
            for case in other_layouts(self.draws[-1]):
                self._keep([case])
            for case in other_shapes(self.contract, self.model, self.base, self.device, self.seed):
                self._keep([case])
        return self._ordered()

    def _draw(self, first: Case, answer: Expected, count: int) -> None:
        self.draws = [replace(first, label="random 1", why=RANDOM_WHY)]
        self.kept.append([(self.draws[0], answer)])
        self.held += 2 * self.need
        for i in range(1, count):
            if i > 1 and not self._take():
                self.dropped.append(f"random {i + 1}: {NO_MEMORY}")
                break
            case = draw(self.contract, self.device, self.seed + i, self.model, jitter=True)
            layout = "" if same_form(case, first) else f"drawn {i + 1}"
            case = replace(case, label=f"random {i + 1}", why=RANDOM_WHY, layout=layout)
            self.kept.append([(case, self.oracle.expect(case))])
            if not layout:
                self.draws.append(case)
        self.base = self.draws[min(1, len(self.draws) - 1)]
        self.domains = [domain([d.tensors[i] for d in self.draws]) for i in range(len(first.tensors))]

    def _interior(self, count: int) -> None:
        """Follow random cases with nearly the same values: a kept answer that is found again by a few of them."""
        for group in self.kept[1 : 1 + count]:
            case = group[0][0]
            swapped = [transforms.swap_inside(t, self.generator) for t in case.tensors]
            if case.layout or all(t is None for t in swapped):
                continue
            if not self._take():
                self.dropped.append(f"inner elements exchanged: {NO_MEMORY}")
                return
            tensors = tuple(t if s is None else s for t, s in zip(case.tensors, swapped, strict=True))
            follower = replace(
                case,
                tensors=tensors,
                label=f"{case.label}, two inner elements exchanged",
                why="an earlier answer given again because corners and sums of the input look the same",
                follows=0,
            )
            group.append((follower, self.oracle.expect(follower)))

    def _probe(self, probe: Probe) -> None:
        attempts = []
        for respect in (False, True):
            tensors = [self._changed(probe, i, respect) for i in range(len(self.domains))]
            if any(new is not old for new, old in zip(tensors, self.base.tensors, strict=True)):
                attempts.append(
                    replace(
                        self.base,
                        tensors=tuple(tensors),
                        label=probe.label,
                        why=probe.why,
                        stressed=True,
                        specials=probe.specials,
                    )
                )
        if all(d.free or d.kind is Kind.WHOLE for d in self.domains):
            attempts = attempts[:1]
        elif self._checked_on_device:
            attempts = attempts[1:]
        self._keep(attempts)

    def _changed(self, probe: Probe, i: int, respect: bool) -> torch.Tensor:
        value, limits = self.base.tensors[i], self.domains[i]
        if limits.kind is Kind.WHOLE:
            return value
        if limits.free or not respect:
            return probe.change(value, limits, self.generator)
        return probe.bounded(value, limits, self.generator) if probe.bounded else value

    def _very_large(self) -> None:
        attempts = [
            self._with(
                {i: transforms.scaled(self.base.tensors[i], factor) for i in self._floating if self.domains[i].free},
                f"{factor:.0e} times as large",
                "overflow inside, where the reference has none",
            )
            for factor in LARGE_FACTORS
        ]
        self._keep([a for a in attempts if a is not None])

    def _huge(self) -> None:
        for i in self._floating:
            limits, x = self.domains[i], self.base.tensors[i]
            values = [limits.peak] if self._checked_on_device else [transforms.HUGE * limits.peak, limits.peak]
            attempts = [
                self._with(
                    {i: transforms.with_huge(x, value, self.generator)},
                    f"one huge value in argument {i + 1}",
                    "a reduction that skips elements",
                )
                for value in (values[:1] if limits.free else values)
            ]
            self._keep([a for a in attempts if a is not None])

    def _arguments(self) -> None:
        """Each argument on its own, unless it is the only one and changes in every random case anyhow."""
        for i, limits in enumerate(self.domains):
            old, new = self.base.tensors[i], self.draws[-1].tensors[i]
            if len(self.domains) == 1 and limits.kind is not Kind.FIXED:
                continue
            if limits.kind is Kind.FIXED or torch.equal(old, new):
                new = transforms.redrawn(old, limits, self.generator)
            case = self._with({i: new}, f"argument {i + 1} alone changed", "an argument that is ignored")
            self._keep([case] if case is not None else [])

    def _state(self, count: int) -> None:
        """Each parameter and buffer on its own."""
        parameters = {name for names in tied(self.model, parameters_only=True) for name in names}
        groups = [g for g in tied(self.model) if _may_change(self.base.state[g[0]], g[0] in parameters)]
        for names in self.random.sample(groups, min(count, len(groups))):
            changed = _moved(self.base.state[names[0]], names[0] in parameters, self.generator)
            state = self.base.state | dict.fromkeys(names, changed)
            kind = "parameter" if names[0] in parameters else "buffer"
            case = replace(
                self.base,
                state=state,
                label=f"{kind} {names[0]} alone changed",
                why=f"a {kind} that is ignored, or whose old values were kept",
                stressed=True,
            )
            self._keep([case])

    @property
    def _floating(self) -> list[int]:
        return [i for i, d in enumerate(self.domains) if d.kind is not Kind.WHOLE]

    @property
    def _checked_on_device(self) -> bool:
        """Whether a value out of range would end the device's context rather than raise."""
        on_cuda = torch.device(self.device).type == "cuda"
        return on_cuda and checked_on_device(self.whole.operators)

    def _with(self, changed: dict[int, torch.Tensor], label: str, why: str) -> Case | None:
        if not changed:
            return None
        tensors = tuple(changed.get(i, t) for i, t in enumerate(self.base.tensors))
        return replace(self.base, tensors=tensors, label=label, why=why, stressed=True)

    def _keep(self, attempts: Sequence[Case]) -> None:
        """Take the first attempt that can tell right from wrong; note why none could."""
        reason = ""
        for case in attempts:
            if not self._take():
                reason = f"{case.label}: {NO_MEMORY}"
                break
            try:
                expected = self.oracle.expect(case)
            except REFUSALS as error:
                self.held -= self.need
                reason = f"{case.label}: the reference raises {type(error).__name__}"
                continue
            what = _useless(case, expected, self.whole)
            if not what:
                self.kept.append([(case, expected)])
                return
            self.held -= self.need
            reason = f"{case.label}: {what}"
        if reason:
            self.dropped.append(reason)

    def _take(self) -> bool:
        """Reserve the memory of one more case, if there is any left."""
        if self.held + self.need > self.budget:
            return False
        self.held += self.need
        return True

    def _ordered(self) -> Plan:
        self.random.shuffle(self.kept)
        # An ordinary case first: where that fails, its message says most.
        self.kept.sort(key=lambda group: group[0][0] is not self.draws[0])
        pairs = list(_numbered(self.kept))
        return Plan(tuple(c for c, _ in pairs), tuple(e for _, e in pairs), tuple(self.dropped))


RANDOM_WHY = "a result that is wrong on ordinary inputs"
NO_MEMORY = "no memory is left for it"


def _numbered(groups: Sequence[Sequence[tuple[Case, Expected]]]) -> Iterator[tuple[Case, Expected]]:
    number = 0
    for group in groups:
        first = number
        for case, expected in group:
            yield (case if case.follows is None else replace(case, follows=first)), expected
            number += 1


def _useless(case: Case, expected: Expected, usual: Expected) -> str:
    """Why a case tells nothing, or an empty string."""
    floating = [i for i, t in enumerate(expected.eager) if t.is_floating_point()]
    if [t.shape for t in expected.eager] != [t.shape for t in usual.eager] and not case.layout:
        return "the output has another shape"
    if not floating:
        return ""
    for i in floating:
        bounds = expected.bounds[i]
        if not isinstance(bounds, Yardstick) or bounds.all_finite:
            continue
        share = float((expected.eager[i].isfinite() & expected.exact[i].isfinite()).double().mean())
        before = usual.bounds[i]
        usual_finite = isinstance(before, Yardstick) and before.all_finite
        if case.specials and share < LEAST_FINITE:
            return "nothing finite is left to compare"
        if not case.specials and usual_finite:
            return f"the answer is not finite in {1 - share:.0%} of its places"
    loosest = [b.rms_bound for b in (expected.bounds[i] for i in floating) if isinstance(b, Yardstick)]
    if loosest and min(loosest) > USELESS:
        return f"rounding alone may move the answer by {min(loosest):.2g} of its size"
    return ""


def _may_change(value: torch.Tensor, parameter: bool) -> bool:
    """Parameters, and buffers that hold statistics or tables of numbers: not masks or patterns of whole numbers."""
    if not value.is_floating_point() or value.numel() == 0 or not bool(value.isfinite().all()):
        return False
    return parameter or bool((value == value.reshape(-1)[0]).all()) or not bool((value == value.round()).all())


def _moved(value: torch.Tensor, parameter: bool, generator: torch.Generator) -> torch.Tensor:
    """Other values; a buffer keeps its signs, as a variance must."""
    noise = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
    wide = value.double()
    if not parameter and bool((wide != 0).any()):
        return (wide * (0.75 + 0.5 * noise)).to(value.dtype)
    spread = float(wide.std(correction=0)) or float(wide.abs().max()) or 1.0
    return (wide + spread * (noise - 0.5)).to(value.dtype)
