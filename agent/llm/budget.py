"""Limits that hold: what may be used is reserved before, and settled after.

What is spent and what is reserved never exceed a limit together, so none is passed however many calls are under way.
The one way past a limit is a call that uses more than was reserved for it; then the truth is recorded, and nothing more
is given out.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from kernelwright.agent.llm.faults import BudgetSpent


@dataclass(frozen=True)
class Amounts:
    """So much of each. Non-negative."""

    usd: float = 0.0
    tokens: float = 0
    """In and out together."""
    candidates: float = 0
    seconds: float = 0.0
    """Of wall time."""
    device_seconds: float = 0.0
    """For which the device was held."""


NOTHING = Amounts()
DIMENSIONS = tuple(field.name for field in fields(Amounts))


@dataclass(frozen=True)
class Limits:
    """The most of each; None: no limit."""

    usd: float | None = None
    tokens: float | None = None
    candidates: float | None = None
    seconds: float | None = None
    device_seconds: float | None = None


class Reservation:
    """What is set aside for something that is under way. Settled exactly once."""

    def __init__(self, budget: Budget, amounts: Amounts) -> None:
        self._budget = budget
        self.amounts = amounts

    def settle(self, used: Amounts) -> None:
        """Say what was used; the rest is free again. Without that, leaving `Budget.reserved` spends all of it."""
        self._budget._settle(self, used)


class Budget:
    """Limits, and what is spent of them. Safe to use from several threads."""

    def __init__(self, limits: Limits, spent: Amounts = NOTHING) -> None:
        """Begin with what an earlier process has spent: see `spending_of` for that of a run's calls."""
        self.limits = limits
        self._settled = [spent]
        self._open: dict[Reservation, Amounts] = {}
        self._changed = threading.Condition()

    @property
    def spent(self) -> Amounts:
        """What was used for certain."""
        with self._changed:
            return _total(self._settled)

    @property
    def committed(self) -> Amounts:
        """What was used, and what is reserved. After a kill this counts as spent, so this is what is kept."""
        with self._changed:
            return _total([*self._settled, *self._open.values()])

    def reserve(self, wanted: Amounts) -> Reservation:
        """Set so much aside. Where only open reservations are in the way, wait for them to be settled.

        Raises BudgetSpent, which names the limit, where there is not enough left even without them.
        """
        with self._changed:
            while True:
                self._refuse([*self._settled, wanted], wanted)
                if self._over([*self._settled, *self._open.values(), wanted]) is None:
                    break
                self._changed.wait()
            reservation = Reservation(self, wanted)
            self._open[reservation] = wanted
            return reservation

    @contextmanager
    def reserved(self, wanted: Amounts) -> Iterator[Reservation]:
        """A reservation for the block. What the block does not settle is spent: who knows what it has used."""
        reservation = self.reserve(wanted)
        try:
            yield reservation
        finally:
            self._settle(reservation, wanted)

    def spend(self, used: Amounts) -> None:
        """Record what is known only afterwards, such as time. It may pass a limit; from then on `check` refuses."""
        with self._changed:
            self._settled.append(used)
            self._changed.notify_all()

    def check(self) -> None:
        """Raise BudgetSpent where a limit is reached."""
        with self._changed:
            total = _total(self._settled)
            for name in DIMENSIONS:
                limit = getattr(self.limits, name)
                if limit is not None and getattr(total, name) >= limit:
                    raise BudgetSpent(name, f"{_said(name, limit)} spent")

    def _settle(self, reservation: Reservation, used: Amounts) -> None:
        with self._changed:
            if self._open.pop(reservation, None) is not None:
                self._settled.append(used)
                self._changed.notify_all()

    def _refuse(self, parts: list[Amounts], wanted: Amounts) -> None:
        name = self._over(parts)
        if name is None:
            return
        limit, used = getattr(self.limits, name), getattr(_total(self._settled), name)
        raise BudgetSpent(
            name,
            f"the limit of {_said(name, limit)} does not allow what comes next: "
            f"{_said(name, used)} spent, {_said(name, getattr(wanted, name))} more may be needed",
        )

    def _over(self, parts: list[Amounts]) -> str | None:
        """The first limit that these exceed together."""
        total = _total(parts)
        for name in DIMENSIONS:
            limit = getattr(self.limits, name)
            if limit is not None and getattr(total, name) > limit:
                return name
        return None


def _total(parts: list[Amounts]) -> Amounts:
    # fsum rounds once: the same parts give the same sum in every order, so what was refused is not let in by rounding.
    return Amounts(**{name: math.fsum(getattr(part, name) for part in parts) for name in DIMENSIONS})


_WORDS = {"tokens": "tokens", "candidates": "candidates", "seconds": "s", "device_seconds": "s of device time"}


def _said(name: str, amount: float) -> str:
    return f"${amount:.4f}" if name == "usd" else f"{amount:,.10g} {_WORDS[name]}"
