"""When to stop searching. Each rule is a function of the history that gives its reason, empty to go on."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.stages.evolve.member import Member, best
from kernelwright.stages.measure.stats import MEANINGFUL

NEAR_LIGHT = 0.95
"""The share of the speed of light after which what is left is not worth a search."""


def target_reached(history: Sequence[Member], target: float | None) -> str:
    """Somebody is `target` times as fast as eager. None: there is no target."""
    leader = best(history)
    if target is None or leader is None or leader.fitness is None or leader.fitness < target:
        return ""
    return f"the target of {target:g}x is reached: {leader.fitness:.2f}x"


def near_speed_of_light(history: Sequence[Member], share: float = NEAR_LIGHT) -> str:
    """The fastest is so near to the least time that the device could take that no rewrite can gain much."""
    leader = best(history)
    reached = None if leader is None else leader.speed_of_light
    if reached is None or reached < share:
        return ""
    return f"{reached:.0%} of the speed of light is reached"


def no_gain(history: Sequence[Member], generations: int) -> str:
    """The last `generations` generations brought nothing that is meaningfully faster than what was there before them.

    Meaningfully: by the same factor that makes a gain over a baseline, lest the luck of the largest of many noisy
    figures keeps a search going. Generations count as they are in the history; with fewer of them there is no verdict.
    """
    numbers = sorted({m.generation for m in history})
    if len(numbers) <= generations:
        return ""
    since = numbers[-generations]
    before, after = best(m for m in history if m.generation < since), best(history)
    if after is not None and (before is None or (after.fitness or 0.0) > MEANINGFUL * (before.fitness or 0.0)):
        return ""
    return f"{generations} generations brought nothing faster"


def reason_to_stop(history: Sequence[Member], *, target: float | None, patience: int) -> str:
    """The first of the rules that says so, in the order in which they are good news; empty to go on."""
    return target_reached(history, target) or near_speed_of_light(history) or no_gain(history, patience)
