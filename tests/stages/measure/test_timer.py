"""The stopwatch over a clock that is ours to set: what it subtracts, in which order it asks, and what it finds odd."""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.stages.measure.timer import Region, Stopwatch
from kernelwright.stages.types import Status


class Contender:
    """Stands where a runner stands: takes a fixed time a call and a message, and notes what it is asked."""

    def __init__(self, call_ms: float, behind_ms: float = 0.0) -> None:
        self.call_ms, self.behind_ms = call_ms, behind_ms
        self.asked: list[list[int]] = []
        self.paused = False

    def ask(self, do: str, timeout_s: float, **fields: Any) -> dict[str, Any]:
        assert do == "begin"
        return {}

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class ExactClock:
    method = "exact"
    answered_is_over = True
    base_ms, message_ms = 0.5, 0.01

    def __init__(self) -> None:
        self.order: list[Any] = []

    def time(self, runner: Any, pieces: Sequence[Sequence[int]], timeout_s: float, before: Any = None) -> Region:
        assert not runner.paused
        calls = [slot for piece in pieces for slot in piece]
        for number in range(len(pieces) if before else 0):
            before(number)
        self.order.append((runner, len(calls)))
        runner.asked.append(calls)
        took = self.base_ms + self.message_ms * len(pieces) + runner.call_ms * len(calls)
        return Region(took, 0.02 + (runner.behind_ms if len(calls) > 1 else 0.0))


def watch(*contenders: Contender, slots: int = 4) -> tuple[Stopwatch, dict[str, Any], ExactClock]:
    clock = ExactClock()
    made = Stopwatch(range(slots), clock, region_ms=20.0, timeout_s=1.0, seed=3)
    runners: dict[str, Any] = {f"c{i}": c for i, c in enumerate(contenders)}
    for name, runner in runners.items():
        made.calibrate(name, runner)
    return made, runners, clock


@pytest.mark.parametrize("call_ms", [0.003, 0.7, 45.0])
def test_a_sample_is_the_time_of_a_call_without_what_messages_cost(call_ms: float) -> None:
    made, runners, _ = watch(Contender(call_ms))
    for _ in range(3):
        made.round(runners, lambda *_: None)
    timing = made.timing("c0")
    assert timing.samples_ms == pytest.approx([call_ms] * 3)
    assert timing.calls_per_region * call_ms >= 20.0 * 0.99


def test_each_round_is_followed_by_its_mirror_image() -> None:
    made, runners, _ = watch(Contender(1.0), Contender(1.0), Contender(1.0))
    orders: list[list[str]] = []
    for _ in range(20):
        asked: list[str] = []
        made.round(runners, lambda name, *_, asked=asked: asked.append(name))
        orders.append(asked)
    assert all(orders[i] == orders[i + 1][::-1] for i in range(0, 20, 2))
    assert len({tuple(order) for order in orders}) > 2


def test_every_slot_comes_before_any_comes_again() -> None:
    made, _, _ = watch(Contender(1.0), slots=5)
    ring = made.ring(23)
    assert all(sorted(ring[i : i + 5]) == list(range(5)) for i in range(0, 20, 5))


@pytest.mark.parametrize(("behind_ms", "agrees"), [(0.0, True), (0.1, True), (5.0, False)])
def test_work_that_the_events_did_not_see_is_tampering(behind_ms: float, agrees: bool) -> None:
    made, runners, _ = watch(Contender(1.0, behind_ms))
    for _ in range(4):
        made.round(runners, lambda *_: None)
    check = made.agreement("c0")
    assert (check.passed, check.refutes) == (agrees, Status.TAMPERED)


def test_a_module_that_works_in_place_meets_each_argument_set_once_a_region() -> None:
    refills = SimpleNamespace(count=0)

    def refill() -> None:
        refills.count += 1

    clock, contender = ExactClock(), Contender(0.001)
    made = Stopwatch(range(6), clock, 20.0, 1.0, seed=random.randrange(99), refill=refill)
    made.calibrate("c", contender)  # type: ignore[arg-type]
    made.round({"c": contender}, lambda *_: None)  # type: ignore[dict-item]
    assert all(len(set(calls)) == len(calls) for calls in contender.asked)
    assert made.timing("c").calls_per_region == 6
    assert refills.count >= 3


def test_while_one_is_timed_the_others_stand_still() -> None:
    made, runners, _ = watch(Contender(1.0), Contender(1.0))
    seen: list[bool] = []

    class Noting(ExactClock):
        def time(self, runner: Any, *args: Any) -> Region:
            seen.append(all(other.paused for other in runners.values() if other is not runner))
            return super().time(runner, *args)

    made.clock = Noting()
    made.round(runners, lambda name, *_: seen.append(not any(r.paused for r in runners.values())))
    assert len(seen) >= 4
    assert all(seen)


@pytest.mark.parametrize(("call_ms", "every"), [(0.01, False), (2.0, True)])
def test_what_is_called_again_in_a_region_is_changed_before(call_ms: float, every: bool) -> None:
    """The last two calls always are; all that come again where a call takes longer than writing a few values."""
    salted: list[tuple[int, bool]] = []
    contender = Contender(call_ms)
    made = Stopwatch(range(4), ExactClock(), 20.0, 1.0, seed=5, salt=lambda slot, least: salted.append((slot, least)))
    made.calibrate("c", contender)  # type: ignore[arg-type]
    salted.clear()
    made.round({"c": contender}, lambda *_: None)  # type: ignore[dict-item]
    calls = contender.asked[-1]
    assert [slot for slot, least in salted if not least] == calls[-2:]
    again = sum(least for _, least in salted)
    assert again == (len(calls) - 4 - 2 if every else 0)
