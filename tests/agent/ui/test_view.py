from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.ui.events import Evaluated, Proposed, Stopped
from kernelwright.agent.ui.view import fold
from kernelwright.stages.execute.job import Progress
from kernelwright.stages.types import Ratio, Status

from .events import candidate, empty, right, wrong

numbers = st.integers(0, 6)
events = st.one_of(
    st.lists(numbers, min_size=1, max_size=3, unique=True).map(
        lambda chosen: Proposed(0, tuple(candidate(n) for n in chosen))
    ),
    st.tuples(numbers, st.floats(0.1, 9.0)).map(
        lambda pair: Evaluated(
            candidate(pair[0]), right(candidate(pair[0]), Ratio(pair[1], pair[1] * 0.9, pair[1] * 1.1))
        )
    ),
    st.tuples(numbers, st.sampled_from([s for s in Status if s is not Status.CORRECT])).map(
        lambda pair: Evaluated(candidate(pair[0]), wrong(candidate(pair[0]), pair[1], "no"))
    ),
)


@given(st.lists(events, max_size=12))
def test_fewer_candidates_come_farther(happened: list[Proposed | Evaluated]) -> None:
    view = empty()
    for event in happened:
        view = fold(view, event)
        funnel = view.funnel
        assert funnel.proposed >= funnel.compiled >= funnel.correct >= funnel.faster
        assert len(view.rejections) <= len(view.judged)


def test_a_second_measurement_outranks_a_lucky_first_one() -> None:
    view = empty()
    lucky, steady = candidate(1), candidate(2)
    view = fold(view, Evaluated(lucky, right(lucky, Ratio(9.0, 2.0, 30.0))))
    view = fold(view, Evaluated(steady, right(steady, Ratio(3.0, 2.9, 3.1))))
    assert view.incumbent is not None
    assert view.incumbent.candidate == lucky
    view = fold(view, Evaluated(lucky, right(lucky, Ratio(2.5, 2.4, 2.6)), confirmed=True))
    assert view.incumbent is not None
    assert view.incumbent.over_eager == Ratio(2.5, 2.4, 2.6)


def test_a_screened_candidate_is_slower_not_wrong() -> None:
    view = fold(empty(), Evaluated(candidate(1), right(candidate(1), Ratio(1.5, 1.4, 1.6), screened=True)))
    (row,) = view.rejections
    assert row.status == "slower"
    assert view.incumbent is None
    assert view.funnel.correct == 1


def test_stages_are_shown_until_the_verdict() -> None:
    view = fold(empty(), Progress("k", "verify"))
    assert view.stages == {"k": "verify"}
    view = fold(view, Evaluated(candidate(1), wrong(candidate(1), Status.CRASH, "died")))
    assert view.stages == {}
    assert fold(view, Stopped("the end")).stop == "the end"
