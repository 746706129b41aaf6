"""A budget is never exceeded, whoever asks for what at the same time."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.agent.llm.budget import DIMENSIONS, NOTHING, Amounts, Budget, Limits
from kernelwright.agent.llm.faults import BudgetSpent

SHARES = st.floats(0.0, 1.0)
STEPS = st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 500), SHARES, st.booleans()), max_size=40)


def test_what_is_reserved_is_free_again_once_less_was_used() -> None:
    budget = Budget(Limits(usd=1.0, tokens=100))
    reservation = budget.reserve(Amounts(usd=0.9, tokens=60))
    assert (budget.spent, budget.committed) == (NOTHING, Amounts(usd=0.9, tokens=60))
    reservation.settle(Amounts(usd=0.2, tokens=10))
    assert budget.spent == budget.committed == Amounts(usd=0.2, tokens=10)
    budget.reserve(Amounts(usd=0.8, tokens=90))


@pytest.mark.parametrize("name", DIMENSIONS)
def test_each_limit_is_named_when_it_is_in_the_way(name: str) -> None:
    budget = Budget(Limits(**{name: 10.0}))
    budget.reserve(Amounts(**{name: 10.0})).settle(Amounts(**{name: 8.0}))
    with pytest.raises(BudgetSpent) as spent:
        budget.reserve(Amounts(**{name: 3.0}))
    assert spent.value.limit == name
    budget.check()
    budget.reserve(Amounts(**{name: 2.0})).settle(Amounts(**{name: 2.0}))
    with pytest.raises(BudgetSpent) as spent:
        budget.check()
    assert spent.value.limit == name


def test_the_message_has_the_figures() -> None:
    budget = Budget(Limits(usd=0.5), spent=Amounts(usd=0.45))
    with pytest.raises(BudgetSpent, match=r"the limit of \$0\.5000 .* \$0\.4500 spent, \$0\.1000 more may be needed"):
        budget.reserve(Amounts(usd=0.1))


def test_what_was_not_settled_is_spent() -> None:
    budget = Budget(Limits(usd=1.0))
    with pytest.raises(ZeroDivisionError), budget.reserved(Amounts(usd=0.4)):
        raise ZeroDivisionError
    assert budget.spent.usd == 0.4
    with budget.reserved(Amounts(usd=0.4)) as reservation:
        reservation.settle(Amounts(usd=0.1))
        reservation.settle(Amounts(usd=0.3))
    assert budget.spent.usd == 0.5


def test_a_resumed_budget_goes_on_where_the_other_stood() -> None:
    first = Budget(Limits(candidates=10))
    first.reserve(Amounts(candidates=4)).settle(Amounts(candidates=4))
    first.reserve(Amounts(candidates=3))
    resumed = Budget(Limits(candidates=10), spent=first.committed)
    resumed.reserve(Amounts(candidates=3))
    with pytest.raises(BudgetSpent):
        resumed.reserve(Amounts(candidates=4))


def test_without_limits_everything_is_allowed_and_counted() -> None:
    budget = Budget(Limits())
    budget.reserve(Amounts(usd=1e9)).settle(Amounts(usd=1e9))
    budget.spend(Amounts(device_seconds=3.0))
    budget.check()
    assert budget.spent == Amounts(usd=1e9, device_seconds=3.0)


@given(limit_usd=st.floats(0.0, 20.0), limit_tokens=st.integers(0, 2000), steps=STEPS)
def test_no_order_of_reserving_and_settling_passes_a_limit(
    limit_usd: float, limit_tokens: int, steps: list[tuple[float, int, float, bool]]
) -> None:
    budget = Budget(Limits(usd=limit_usd, tokens=limit_tokens))
    under_way = []
    for usd, tokens, used, settle_one in steps:
        wanted = Amounts(usd=usd, tokens=tokens)
        free = (limit_usd - budget.committed.usd, limit_tokens - budget.committed.tokens)
        # Well below, for `reserve` would wait where rounding tips the scale.
        if usd < 0.99 * free[0] and tokens <= free[1]:
            under_way.append((budget.reserve(wanted), used))
        elif settle_one and under_way:
            reservation, share = under_way.pop(0)
            amounts = reservation.amounts
            reservation.settle(Amounts(usd=amounts.usd * share, tokens=int(amounts.tokens * share)))
        assert budget.committed.usd <= limit_usd
        assert budget.committed.tokens <= limit_tokens
        assert budget.spent.usd <= budget.committed.usd


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.integers(1, 40))
def test_eight_threads_never_pass_a_limit_and_use_what_they_can(seed: int, limit: int) -> None:
    budget = Budget(Limits(usd=float(limit), tokens=limit * 100))
    used: list[float] = []
    over: list[Amounts] = []

    def work(number: int) -> None:
        draw = random.Random(f"{seed}/{number}")
        while True:
            wanted = draw.uniform(0.5, 1.0)
            try:
                reservation = budget.reserve(Amounts(usd=wanted, tokens=int(wanted * 100)))
            except BudgetSpent:
                return
            if budget.committed.usd > limit:
                over.append(budget.committed)
            time.sleep(draw.random() / 2000)
            used.append(wanted * draw.random())
            reservation.settle(Amounts(usd=used[-1]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert over == []
    assert budget.spent == budget.committed
    assert budget.spent.usd == pytest.approx(sum(used))
    # A thread gives up only where its next call may not fit, and a call may need one dollar at most.
    assert limit - 1.0 < budget.spent.usd <= limit


def test_who_must_wait_for_another_gets_what_the_other_leaves() -> None:
    budget = Budget(Limits(usd=1.0))
    first = budget.reserve(Amounts(usd=0.9))
    began = threading.Event()

    def second() -> Amounts:
        began.set()
        return budget.reserve(Amounts(usd=0.5)).amounts

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second)
        assert began.wait(10)
        assert not waiting.done()
        first.settle(Amounts(usd=0.1))
        assert waiting.result(timeout=10) == Amounts(usd=0.5)


def test_who_waits_in_vain_is_told_so() -> None:
    budget = Budget(Limits(usd=1.0))
    first = budget.reserve(Amounts(usd=0.9))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(budget.reserve, Amounts(usd=0.5))
        first.settle(Amounts(usd=0.9))
        with pytest.raises(BudgetSpent):
            waiting.result(timeout=10)
