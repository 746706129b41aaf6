"""The embedded default: the generator's templates, and Optuna's search over their parameters. No model is asked."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import create_trial

from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.stages.generate import templates_for
from kernelwright.stages.generate.template import Template
from kernelwright.stages.types import Backend, Candidate, Scalar

FAILED_VALUE = 10.0
"""What the search is told of a candidate that is wrong: ten times slower than eager."""

FASTEST = 2
"""How many of the fastest choices the search steps from: with one alone it stays on the hill that it found first."""

optuna.logging.set_verbosity(optuna.logging.WARNING)


Point = tuple[Scalar, ...]
"""A choice of every parameter, in the order of the template's space."""


class BuiltinProposer:
    """Generation 0: every template's default choice. Later: the sampler's choices, most for the best template."""

    name = "builtin"

    def __init__(self, backends: Sequence[Backend] | None = None) -> None:
        """`backends` limits the templates; None takes all that fit the device."""
        self.backends = backends
        self._searches: dict[tuple[str, str], list[_Search]] = {}

    def propose(self, context: Context) -> list[Candidate]:
        """At most `context.slots` new candidates; fewer when the templates' spaces are exhausted."""
        searches = self._for(context)
        for search in searches:
            search.begin(context)
        seen = {trial.candidate.hash for trial in context.history}
        found: list[Candidate] = []
        for search in _turns(searches, context):
            if len(found) == context.slots:
                break
            choice = search.next()
            if choice is None:
                continue
            candidate = search.template.candidate(choice, search.parents)
            # Two choices may give the same source, where a parameter is felt by no kernel.
            if candidate.hash not in seen:
                seen.add(candidate.hash)
                found.append(candidate)
        return found

    def _for(self, context: Context) -> list[_Search]:
        key = (context.problem.hash, context.device)
        if key not in self._searches:
            offered = templates_for(context.problem, context.info, context.device)
            self._searches[key] = [_Search(t) for t in offered if self.backends is None or t.backend in self.backends]
        return self._searches[key]


class _Search:
    """One template's search. What it keeps between generations is only what the history would give it again."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.size = math.prod(len(choices) for choices in template.space.values())
        self.best = FAILED_VALUE
        self.parents: tuple[str, ...] = ()
        self.seen: set[Point] = set()
        # Positions in the choices: the sampler compares choices by the thousand, and numbers compare faster.
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(len(choices))) for name, choices in template.space.items()
        }
        self._points = list(itertools.product(*template.space.values()))
        self._place = {point: at for at, point in enumerate(self._points)}
        self._coordinates = _coordinates(template.space)
        self._study = optuna.create_study()
        self._sampler: Callable[[], dict[str, int]] | None = None
        self._seed = self._startup = 0
        self._told: set[str] = set()
        self._random = random.Random(0)
        self._fastest: list[Point] = []
        self._asked = 0

    def begin(self, context: Context) -> None:
        """Take the history in, and start this generation's own random numbers."""
        tried = [t for t in context.history if t.candidate.template == self.template.name]
        for trial in tried:
            if trial.candidate.hash not in self._told:
                self._told.add(trial.candidate.hash)
                self._tell(trial)
        self.best = min((_value(t) for t in tried), default=FAILED_VALUE)
        self.parents = _best_parent(tried)
        self.seen = {self._point(t.candidate.tunables) for t in tried}
        right = sorted((t for t in tried if _value(t) < FAILED_VALUE), key=_value)
        self._fastest = [self._point(t.candidate.tunables) for t in right[:FASTEST]]
        text = f"{context.seed}/{context.generation}/{self.template.name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        self._seed, self._startup, self._sampler = seed, max(4, context.slots), None
        self._random = random.Random(seed)
        self._asked = 0

    def next(self) -> dict[str, Scalar] | None:
        """A choice that was not tried: the default, then the sampler's; None when all were."""
        if len(self.seen) >= self.size:
            return None
        choice = dict(self.template.default) if not self.seen else self._search()
        self.seen.add(self._point(choice))
        return choice

    def _tell(self, trial: Trial) -> None:
        self._study.add_trial(
            create_trial(params=self._positions(trial), distributions=self._distributions, value=_value(trial))
        )

    def _search(self) -> dict[str, Scalar]:
        """The sampler's choice every third time, else a step from one of the fastest; the nearest untried to it.

        The sampler alone learns too little from some twenty results, and within a generation nothing.
        """
        self._asked += 1
        wish = self._sampled() if self._asked % 3 == 1 else self._stepped()
        if wish in self.seen:
            wish = self._nearest(wish)
        return dict(zip(self.template.space, wish, strict=True))

    def _sampled(self) -> Point:
        """What the sampler would try, asked of it directly: a trial of the study for each costs twice the sample."""
        if self._sampler is None:
            self._sampler = self._open_sampler()
        positions = self._sampler()
        if not positions:  # as long as it knows too few results
            return self._anywhere()
        return tuple(choices[positions[name]] for name, choices in self.template.space.items())

    def _open_sampler(self) -> Callable[[], dict[str, int]]:
        sampler = TPESampler(seed=self._seed, n_startup_trials=self._startup, multivariate=True, constant_liar=False)
        # The generation's one open trial. Opening it lets the sampler see what was told since the last.
        number = self._study.ask().number
        trial = self._study.get_trials(deepcopy=False)[number]
        return partial(sampler.sample_relative, self._study, trial, self._distributions)

    def _anywhere(self) -> Point:
        return tuple(self._random.choice(choices) for choices in self.template.space.values())

    def _stepped(self) -> Point:
        """One of the fastest choices with one or two parameters changed; any choice while nothing was right."""
        if not self._fastest:
            return self._anywhere()
        point = list(self._random.choice(self._fastest))
        free = [(at, choices) for at, choices in enumerate(self.template.space.values()) if len(choices) > 1]
        for at, choices in self._random.sample(free, min(self._random.choice((1, 1, 2)), len(free))):
            point[at] = self._random.choice(_beside(choices, point[at]))
        return tuple(point)

    def _nearest(self, wish: Point) -> Point:
        """The untried point with the least distance: over the parameters that differ, the share of their range."""
        distances = np.abs(self._coordinates - self._coordinates[self._place[wish]]).sum(axis=1)
        distances[[self._place[point] for point in self.seen]] = np.inf
        return self._points[self._random.choice(np.flatnonzero(distances == distances.min()).tolist())]

    def _positions(self, trial: Trial) -> dict[str, int]:
        tunables = trial.candidate.tunables
        return {name: list(choices).index(tunables[name]) for name, choices in self.template.space.items()}

    def _point(self, choice: Mapping[str, Scalar]) -> Point:
        return tuple(choice[name] for name in self.template.space)


def _beside(choices: Sequence[Scalar], value: Scalar) -> list[Scalar]:
    """The next smaller and the next larger choice; all others where they have no order."""
    if isinstance(value, str):
        return [c for c in choices if c != value]
    at = list(choices).index(value)
    return [*choices[max(at - 1, 0) : at], *choices[at + 1 : at + 2]]


def _coordinates(space: Mapping[str, Sequence[Scalar]]) -> NDArray[np.float64]:
    """Every point of the space, in the order of `itertools.product`: (points, coordinates).

    An ordered parameter is one coordinate in 0..1, a named one a half in each of its choices' coordinates: two names
    differ by one.
    """
    columns = []
    for choices in space.values():
        if isinstance(choices[0], str):
            columns.append(np.eye(len(choices)) / 2)
        else:
            columns.append(np.linspace(0.0, 1.0, len(choices))[:, None])
    return np.array([np.concatenate(rows) for rows in itertools.product(*columns)])


def _turns(searches: list[_Search], context: Context) -> Iterator[_Search]:
    """Which search each slot is for: every one once, then every second slot for the best so far."""
    if context.generation == 0:
        yield from searches
    ranked = sorted(searches, key=lambda search: search.best)
    # An exhausted search takes a turn and fills no slot, hence room for as many turns as all spaces hold.
    for number in range(2 * (context.slots + sum(s.size for s in searches)) if ranked else 0):
        yield ranked[0] if number % 2 == 0 else ranked[(number // 2) % len(ranked)]


def _value(trial: Trial) -> float:
    """Time over eager's, to be made small."""
    measurement = trial.result.measurement
    if measurement is None or "eager" not in measurement.speedups:
        return FAILED_VALUE
    return 1.0 / measurement.speedups["eager"].median


def _best_parent(tried: Sequence[Trial]) -> tuple[str, ...]:
    measured = [t for t in tried if t.result.measurement is not None]
    return (min(measured, key=_value).candidate.hash,) if measured else ()
