"""Which model is asked for what."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.llm.models import Models, Role, Tried, choose, parse_models
from kernelwright.kernelbench.errors import UsageError

TRANSLATE, PROPOSE, DIAGNOSE = Role.TRANSLATE, Role.PROPOSE, Role.DIAGNOSE


@pytest.mark.parametrize(
    ("options", "by_role"),
    [
        (["a"], {TRANSLATE: ("a",), PROPOSE: ("a",), DIAGNOSE: ("a",)}),
        (["a,b", "b"], {TRANSLATE: ("a", "b"), PROPOSE: ("a", "b"), DIAGNOSE: ("a", "b")}),
        (["a", "propose=b, c"], {TRANSLATE: ("a",), PROPOSE: ("b", "c"), DIAGNOSE: ("a",)}),
        (["propose=a", "propose=b"], {TRANSLATE: ("a", "b"), PROPOSE: ("a", "b"), DIAGNOSE: ("a", "b")}),
        (["diagnose=org/a:free", "x"], {TRANSLATE: ("x",), PROPOSE: ("x",), DIAGNOSE: ("org/a:free",)}),
    ],
)
def test_options_name_models_by_role(options: list[str], by_role: dict[Role, tuple[str, ...]]) -> None:
    assert parse_models(options) == Models(by_role)


def test_all_models_are_listed_once() -> None:
    assert set(parse_models(["a,b", "propose=c,a"]).all) == {"a", "b", "c"}
    assert len(parse_models(["a,b", "propose=c,a"]).all) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no model: name one"),
        (["propose="], "names no model"),
        ([" , "], "names no model"),
        (["judge=a"], "no role judge; the roles are translate, propose, diagnose"),
    ],
)
def test_options_that_name_nothing_are_refused(options: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_models(options)


HISTORY = st.lists(
    st.builds(
        Tried,
        st.sampled_from(["a", "b", "c"]),
        st.floats(0.0, 2.0),
        st.integers(1, 100_000),
        st.none() | st.floats(0.0, 1.0),
    ),
    max_size=12,
)


@given(history=HISTORY, seed=st.integers(), turn=st.integers(0, 100))
def test_the_same_history_seed_and_turn_choose_the_same_model(history: list[Tried], seed: int, turn: int) -> None:
    chosen = choose(["a", "b", "c"], history, seed, turn)
    assert chosen in ("a", "b", "c")
    assert choose(["a", "b", "c"], list(history), seed, turn) == chosen
    assert choose(["b"], history, seed, turn) == "b"


def shares(history: list[Tried], models: tuple[str, ...] = ("a", "b"), turns: int = 600) -> Counter[str]:
    return Counter(choose(models, history, 1, turn) for turn in range(turns))


def test_without_history_all_are_tried() -> None:
    assert min(shares([], ("a", "b", "c")).values()) > 120


def test_where_nobody_gained_anything_all_are_tried() -> None:
    assert min(shares([Tried("a", 0.0, 100, 0.1), Tried("b", 0.0, 100, 0.01)] * 5).values()) > 150


def test_the_same_gain_for_less_money_is_chosen_more_often_but_not_always() -> None:
    history = [Tried("dear", g, 1000, 0.10) for g in (0.0, 0.4, 0.2)]
    history += [Tried("cheap", g, 1000, 0.05) for g in (0.0, 0.4, 0.2)]
    found = shares(history, ("dear", "cheap"))
    assert found["cheap"] > 2 * found["dear"] > 0


def test_a_dear_model_that_gains_enough_wins() -> None:
    history = [Tried("dear", g, 1000, 0.10) for g in (0.9, 1.1, 1.0, 1.2)]
    history += [Tried("cheap", g, 1000, 0.02) for g in (0.0, 0.1, 0.0, 0.0)]
    found = shares(history, ("dear", "cheap"))
    assert found["dear"] > found["cheap"]


def test_where_a_price_is_missing_tokens_are_what_counts() -> None:
    history = [Tried("talks", g, 9000, 0.01) for g in (0.4, 0.5, 0.3, 0.4)]
    history += [Tried("brief", g, 1000, None) for g in (0.4, 0.5, 0.3, 0.4)]
    found = shares(history, ("talks", "brief"))
    assert found["brief"] > 4 * found["talks"]


def test_a_new_model_is_tried_beside_one_that_is_good() -> None:
    history = [Tried("old", g, 1000, 0.1) for g in (0.5, 0.4, 0.6)]
    assert shares(history, ("old", "new"))["new"] > 120
