import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.sandbox.stream import MAX_CHUNK, chunks


@given(st.lists(st.integers(0, 31), max_size=500), st.integers())
def test_chunks_are_the_calls_in_order_and_never_long(slots: list[int], seed: int) -> None:
    pieces = chunks(slots, random.Random(seed))
    assert [slot for piece in pieces for slot in piece] == slots
    assert all(1 <= len(piece) <= MAX_CHUNK for piece in pieces)


@given(st.integers(2, 64), st.integers(1, 500), st.integers())
def test_neighbouring_chunks_of_a_ring_have_no_slot_in_common(slots: int, calls: int, seed: int) -> None:
    """What the next chunk is to find can be written while a runner works on the one before it."""
    pieces = chunks([i % slots for i in range(calls)], random.Random(seed))
    assert all(not set(a) & set(b) for a, b in itertools.pairwise(pieces))
    assert all(len(set(piece)) == len(piece) for piece in pieces)
    if slots >= 4 and calls >= 4:
        assert len(pieces[-1]) >= 2
