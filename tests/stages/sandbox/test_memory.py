import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.sandbox import memory

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])


@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=5))
def test_tensors_in_one_block_never_overlap_and_keep_their_values(
    kinds: list[tuple[tuple[int, ...], torch.dtype]],
) -> None:
    originals = [(torch.rand(shape) * 100).to(dtype) for shape, dtype in kinds]
    places, nbytes = memory.layout(originals, 7)
    segment = memory.allocate(nbytes, "cpu")
    views = [place.view({7: segment}) for place in places]
    for view, original in zip(views, originals, strict=True):
        view.copy_(original)
    for view, original, place in zip(views, originals, places, strict=True):
        assert torch.equal(view, original)
        assert place.offset % memory.ALIGNMENT == 0
    segment.close()


def test_strides_are_kept_and_broadcasts_are_laid_out_densely() -> None:
    transposed, broadcast = torch.rand(3, 4).t(), torch.rand(1, 4).expand(3, 4)
    (first, second), _ = memory.layout([transposed, broadcast], 0)
    assert first.stride == (1, 4)
    assert second.stride == (4, 1)


def test_both_sides_of_a_segment_see_the_same_bytes() -> None:
    import os

    segment = memory.allocate(64, "cpu")
    assert segment.fd is not None
    other = memory.attach(segment.handle, os.dup(segment.fd))
    segment.data.fill_(7)
    assert int(other.data.sum()) == 7 * 64
    segment.close()
