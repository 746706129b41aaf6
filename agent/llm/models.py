"""Which model is asked for what: roles as `--model` names them, and a bandit over the models of one role."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernelwright.kernelbench.errors import UsageError


class Role(StrEnum):
    """What a model is asked to be."""

    TRANSLATE = "translate"
    """Writes the first kernels, and repairs what is wrong."""
    PROPOSE = "propose"
    """Makes a kernel faster."""
    DIAGNOSE = "diagnose"
    """Says what holds a kernel back."""


@dataclass(frozen=True)
class Models:
    """Models by role, each at least one."""

    by_role: Mapping[Role, tuple[str, ...]]

    @property
    def all(self) -> tuple[str, ...]:
        """Every model once, in the order in which they were named."""
        return tuple(dict.fromkeys(name for names in self.by_role.values() for name in names))


def parse_models(options: Sequence[str]) -> Models:
    """What `--model` said, given any number of times: `NAME[,NAME]` for every role, `ROLE=NAME[,NAME]` for one.

    A role that nobody named takes the models for every role; without any, those of the first role that was named.
    Raises UsageError for an unknown role, and for an option that names no model.
    """
    named: dict[Role, tuple[str, ...]] = {}
    common: tuple[str, ...] = ()
    for option in options:
        role, is_assignment, names = option.rpartition("=")
        models = tuple(name.strip() for name in names.split(",") if name.strip())
        if not models:
            raise UsageError(f"--model {option}: names no model")
        if not is_assignment:
            common += models
        elif role in set(Role):
            named[Role(role)] = named.get(Role(role), ()) + models
        else:
            raise UsageError(f"--model {option}: no role {role}; the roles are {', '.join(Role)}")
    rest = common or next(iter(named.values()), ())
    if not rest:
        raise UsageError("no model: name one by --model")
    return Models({role: tuple(dict.fromkeys(named.get(role, rest))) for role in Role})


@dataclass(frozen=True)
class Tried:
    """What a model's call brought."""

    model: str
    gain: float
    """Natural logarithm of the speedup over the candidate that it started from; 0 where that is below 1, or wrong."""
    tokens: int
    """In and out."""
    cost_usd: float | None
    """None where the price is not known."""


def choose(models: Sequence[str], history: Sequence[Tried], seed: int, turn: int) -> str:
    """The model to ask next: the one that seems to bring the most gain for a dollar, or for a token where any price is
    missing. The same arguments give the same model.

    Thompson sampling with a Bayesian bootstrap (Rubin, Annals of Statistics 9(1), 1981; for bandits: Osband and Van
    Roy, arXiv:1507.00300): each model's calls are weighted at random, and the highest ratio of gain to cost wins. Each
    model has one invented call besides, as good as the best so far at its own mean cost, so that the less is known
    about a model, the more likely it is tried. `turn` numbers the choices that are made from one history.
    """
    if len(models) == 1:
        return models[0]
    mine = [tried for tried in history if tried.model in models]
    by_dollars = all(tried.cost_usd is not None for tried in mine)
    spent = {name: [(t.gain, _cost(t, by_dollars)) for t in mine if t.model == name] for name in models}
    every_cost = [cost for pairs in spent.values() for _, cost in pairs]
    common_cost = sum(every_cost) / len(every_cost) if every_cost else 1.0
    best_mean = max((sum(g for g, _ in pairs) / len(pairs) for pairs in spent.values() if pairs), default=0.0)
    draw = random.Random(f"{seed}/{turn}/{len(history)}")

    def sampled(name: str) -> tuple[float, float]:
        pairs = spent[name]
        cost = sum(c for _, c in pairs) / len(pairs) if pairs else common_cost
        weighted = [(draw.expovariate(1.0), gain, cost) for gain, cost in [*pairs, (best_mean, cost)]]
        total = sum(weight * cost for weight, _, cost in weighted)
        ratio = sum(weight * gain for weight, gain, _ in weighted) / total if total > 0.0 else float("inf")
        # Before anybody has gained anything all ratios are equal: then chance decides.
        return ratio, draw.random()

    return max(models, key=sampled)


def _cost(tried: Tried, by_dollars: bool) -> float:
    return tried.cost_usd if by_dollars and tried.cost_usd is not None else float(tried.tokens)
