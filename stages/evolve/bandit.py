"""A bandit: which of several ways to go next, by what each has paid, the latest counting most.

Thompson sampling with Gaussian beliefs (Agrawal and Goyal, Further optimal regret bounds for Thompson sampling,
AISTATS 2013), each pull discounted by its age (Qi, Wang and Zhu, Discounted Thompson sampling for non-stationary bandit
problems, arXiv:2305.10718): what pays early in a search is used up later. Drawing from beliefs, where an upper
confidence bound would be a rule, lets the slots of one generation differ though none has a result yet.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DISCOUNT = 0.97
"""A pull's weight is this to the power of the pulls since: some 33 pulls are remembered."""
LEAST_DEVIATION = 0.05
"""Spread of a single gain that is assumed at least: log 1.05, about 5 % of speed."""


@dataclass(frozen=True)
class Pull:
    """One try of an arm and what it gained, in any unit that adds up (here: the logarithm of a speedup)."""

    arm: str
    gain: float


@dataclass(frozen=True)
class Belief:
    """What an arm is believed to gain on average, in the unit of the pulls."""

    mean: float
    deviation: float


def beliefs(arms: Sequence[str], pulls: Sequence[Pull], discount: float = DISCOUNT) -> dict[str, Belief]:
    """The belief about each arm, from pulls in the order in which they were made.

    Each arm starts with one imagined pull that gained the average over all arms.
    """
    weighted = [(pull, discount**age) for age, pull in enumerate(reversed([p for p in pulls if p.arm in arms]))]
    total = sum(w for _, w in weighted)
    average = sum(w * p.gain for p, w in weighted) / total if total else 0.0
    variance = sum(w * (p.gain - average) ** 2 for p, w in weighted) / total if total else 0.0
    spread = max(math.sqrt(variance), LEAST_DEVIATION)
    found = {}
    for arm in arms:
        own = [(p.gain, w) for p, w in weighted if p.arm == arm]
        weight = 1.0 + sum(w for _, w in own)
        mean = (average + sum(gain * w for gain, w in own)) / weight
        found[arm] = Belief(mean, spread / math.sqrt(weight))
    return found


def choose(arms: Sequence[str], pulls: Sequence[Pull], draw: random.Random, discount: float = DISCOUNT) -> str:
    """The arm whose drawn gain is largest. Raises ValueError where there is no arm."""
    if not arms:
        raise ValueError("no arm to choose from")
    drawn = _drawn(beliefs(arms, pulls, discount), draw)
    return max(drawn, key=lambda arm: drawn[arm])


def _drawn(held: Mapping[str, Belief], draw: random.Random) -> dict[str, float]:
    return {arm: draw.gauss(belief.mean, belief.deviation) for arm, belief in held.items()}
