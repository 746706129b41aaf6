import random

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.sandbox.stream import MAX_CHUNK, chunks


@given(st.lists(st.integers(0, 31), max_size=500), st.integers())
def test_chunks_are_the_calls_in_order_and_never_long(slots: list[int], seed: int) -> None:
    pieces = chunks(slots, random.Random(seed))
    assert [slot for piece in pieces for slot in piece] == slots
    assert all(1 <= len(piece) <= MAX_CHUNK for piece in pieces)


@given(st.integers(2, 64), st.integers(2, 500), st.integers(1, 64), st.integers())
def test_the_last_chunk_holds_the_calls_whose_outputs_stay(slots: int, calls: int, longest: int, seed: int) -> None:
    """So that what they find can be written before it is sent."""
    pieces = chunks([i % slots for i in range(calls)], random.Random(seed), longest)
    assert len(pieces[-1]) >= 2
    assert all(len(piece) <= max(2, longest) for piece in pieces)
