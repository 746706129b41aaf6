import random

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.sandbox.stream import MAX_CHUNK, chunks


@given(st.lists(st.integers(0, 31), max_size=500), st.integers())
def test_chunks_are_the_calls_in_order_and_never_long(slots: list[int], seed: int) -> None:
    pieces = chunks(slots, random.Random(seed))
    assert [slot for piece in pieces for slot in piece] == slots
    assert all(1 <= len(piece) <= MAX_CHUNK for piece in pieces)
