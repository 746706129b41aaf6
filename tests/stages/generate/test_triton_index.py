from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load
from kernelwright.stages.generate.triton_index import Index, index_of, offset


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=0, max_size=4))
def test_the_expression_gives_the_dot_product_of_coordinates_and_strides(dimensions: list[tuple[int, int]]) -> None:
    sizes, strides = [n for n, _ in dimensions], [s for _, s in dimensions]
    expression = offset("i", sizes, strides) or "0"
    for i, coordinates in enumerate(product(*(range(n) for n in sizes))):
        assert eval(expression, {"i": i}) == sum(c * s for c, s in zip(coordinates, strides, strict=True))


@pytest.mark.parametrize(
    ("sizes", "strides", "expression"),
    [
        ((4, 8, 16), (128, 16, 1), "i"),
        ((4, 8, 16), (0, 0, 1), "(i % 16)"),
        ((4, 8, 16), (0, 1, 0), "(i // 16 % 8)"),
        ((4, 8, 16), (1, 0, 0), "(i // 128)"),
        ((4, 8, 16), (0, 0, 0), ""),
        ((4, 1, 16), (16, 99, 1), "i"),
    ],
)
def test_the_expression_is_as_short_as_the_layout_allows(
    sizes: tuple[int, ...], strides: tuple[int, ...], expression: str
) -> None:
    assert offset("i", sizes, strides) == expression


@pytest.mark.parametrize(
    ("rows", "free", "index"),
    [
        (2**20, False, Index.INT32),
        (2**21, False, Index.INT64),
        (2**20, True, Index.BY_SIZE),
        (2**21, True, Index.INT64),
    ],
)
def test_64_bits_are_used_only_where_an_offset_may_need_them(rows: int, free: bool, index: Index) -> None:
    load = Load("x", "x", "float32", (1024, 1), Domain.FULL)
    assert index_of(FusedKernel("k", (rows, 1024), 0, (load,), (), (), ()), free) is index
