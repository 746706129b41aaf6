"""The embedded default: the generator's templates, and Optuna's search over their parameters. No model is asked."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence

import optuna

from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.stages.generate import templates_for
from kernelwright.stages.generate.template import Template
from kernelwright.stages.types import Backend, Candidate

FAILED_VALUE = 10.0
"""What the search is told of a candidate that is wrong: ten times slower than eager."""
ASKS = 20
"""How often the sampler may name a choice that was tried before the next untried one is taken in order."""

optuna.logging.set_verbosity(optuna.logging.WARNING)


class BuiltinProposer:
    """Generation 0: every template's default choice. Later: the sampler's choices, most for the best template."""

    name = "builtin"

    def __init__(self, backends: Sequence[Backend] | None = None) -> None:
        """`backends` limits the templates; None takes all that fit the device."""
        self.backends = backends

    def propose(self, context: Context) -> list[Candidate]:
        """At most `context.slots` new candidates; fewer when the templates' spaces are exhausted."""
        templates = [
            t
            for t in templates_for(context.problem, context.info, context.device)
            if self.backends is None or t.backend in self.backends
        ]
        seen = {trial.candidate.hash for trial in context.history}
        found: list[Candidate] = []
        for template in self._turns(templates, context):
            if len(found) == context.slots:
                break
            candidate = self._next(template, context, found, seen)
            if candidate is not None:
                found.append(candidate)
                seen.add(candidate.hash)
        return found

    def _turns(self, templates: list[Template], context: Context) -> Iterator[Template]:
        """Which template each slot is for: every one once, then every second slot for the best so far."""
        if context.generation == 0:
            yield from templates
        ranked = sorted(templates, key=lambda t: min(_values(t, context.history), default=FAILED_VALUE))
        # An exhausted template takes a turn and fills no slot, hence the room for as many turns as all spaces hold.
        turns = context.slots + sum(_size(t) for t in templates)
        for number in range(turns if ranked else 0):
            yield ranked[0] if number % 2 == 0 else ranked[(number // 2) % len(ranked)]

    def _next(
        self, template: Template, context: Context, found: Sequence[Candidate], seen: set[str]
    ) -> Candidate | None:
        tried = [t for t in context.history if t.candidate.template == template.name]
        parents = _best_parent(tried)
        if not tried and not any(c.template == template.name for c in found):
            return template.candidate(template.default)
        study = _study(template, tried, found, context)
        for _ in range(ASKS):
            asked = study.ask(_distributions(template))
            candidate = template.candidate({k: asked.params[k] for k in template.space}, parents)
            if candidate.hash not in seen:
                return candidate
        for values in itertools.product(*template.space.values()):
            candidate = template.candidate(dict(zip(template.space, values, strict=True)), parents)
            if candidate.hash not in seen:
                return candidate
        return None


def _study(
    template: Template, tried: Sequence[Trial], found: Sequence[Candidate], context: Context
) -> optuna.study.Study:
    """A study rebuilt from the history, so that nothing has to be kept between generations or across a kill."""
    text = f"{context.seed}/{context.generation}/{template.name}/{len(found)}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(4, context.slots), multivariate=True)
    study = optuna.create_study(sampler=sampler)
    for trial in tried:
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(trial.candidate.tunables), distributions=_distributions(template), value=_value(trial)
            )
        )
    return study


def _distributions(template: Template) -> dict[str, optuna.distributions.BaseDistribution]:
    return {name: optuna.distributions.CategoricalDistribution(list(c)) for name, c in template.space.items()}


def _size(template: Template) -> int:
    return math.prod(len(choices) for choices in template.space.values())


def _value(trial: Trial) -> float:
    """Time over eager's, to be made small."""
    measurement = trial.result.measurement
    if measurement is None or "eager" not in measurement.speedups:
        return FAILED_VALUE
    return 1.0 / measurement.speedups["eager"].median


def _values(template: Template, history: Sequence[Trial]) -> list[float]:
    return [_value(t) for t in history if t.candidate.template == template.name]


def _best_parent(tried: Sequence[Trial]) -> tuple[str, ...]:
    measured = [t for t in tried if t.result.measurement is not None]
    return (min(measured, key=_value).candidate.hash,) if measured else ()
