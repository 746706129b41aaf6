"""Sections, and what goes when a prompt is too long."""

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.llm.prompt import REQUIRED, Prompt, Section, estimate_tokens, most_tokens

SECTIONS = st.lists(
    st.builds(Section, st.text(max_size=5), st.text(max_size=200), st.integers(0, REQUIRED)), max_size=8
).map(tuple)


def test_sizes_are_told_by_characters() -> None:
    assert [estimate_tokens(text) for text in ("", "abc", "abcd", "x" * 35)] == [0, 1, 2, 10]
    assert [most_tokens(text) for text in ("", "abc", "é", "漢字")] == [0, 2, 1, 3]


def test_messages_have_the_system_first() -> None:
    prompt = Prompt((Section("a", "one"), Section("b", "two")), system="You write kernels.")
    assert prompt.messages() == [
        {"role": "system", "content": "You write kernels."},
        {"role": "user", "content": "one\n\ntwo"},
    ]
    assert Prompt((Section("a", "one"),)).messages() == [{"role": "user", "content": "one"}]


def test_the_lowest_priority_goes_first_and_of_equal_ones_the_last() -> None:
    prompt = Prompt(
        (
            Section("task", "T" * 70),
            Section("try 1", "1" * 70, priority=20),
            Section("try 2", "2" * 70, priority=20),
            Section("card", "C" * 70, priority=10),
        )
    )
    steps = [prompt.shrunk(tokens) for tokens in (85, 60, 40, 1)]
    assert [step and step.dropped for step in steps] == [
        ("card",),
        ("card", "try 2"),
        ("card", "try 2", "try 1"),
        ("card", "try 2", "try 1"),
    ]


def test_something_goes_even_where_the_estimate_says_that_it_fits() -> None:
    prompt = Prompt((Section("task", "T"), Section("card", "C", priority=1)))
    shrunk = prompt.shrunk(10_000)
    assert shrunk is not None
    assert shrunk.dropped == ("card",)


@given(SECTIONS, st.integers(0, 500))
def test_what_is_required_stays_and_the_rest_keeps_its_order(sections: tuple[Section, ...], tokens: int) -> None:
    shrunk = Prompt(sections).shrunk(tokens)
    droppable = [s for s in sections if s.priority < REQUIRED]
    assert (shrunk is None) == (not droppable)
    if shrunk is None:
        return
    assert [s for s in shrunk.sections if s.priority >= REQUIRED] == [s for s in sections if s.priority >= REQUIRED]
    kept = iter(sections)
    assert all(any(section is candidate for candidate in kept) for section in shrunk.sections)
    assert len(shrunk.sections) + len(shrunk.dropped) == len(sections)
    assert shrunk.tokens <= tokens or len(shrunk.dropped) == len(droppable)
