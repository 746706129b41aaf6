import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.sandbox import tree

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
nests = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))  # type: ignore[arg-type]
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(nests)
def test_a_nest_survives_the_way_through_json(value: object) -> None:
    description = json.loads(json.dumps(tree.flatten(value, [])))
    assert same(tree.unflatten(description, []), value)


def test_tensors_are_kept_apart_in_order() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    found: list[torch.Tensor] = []
    description = tree.flatten((a, {"b": b}, 7), found)
    assert [t.shape for t in found] == [a.shape, b.shape]
    assert tree.unflatten(description, found)[1]["b"] is b


def test_a_list_where_the_reference_has_a_tuple_is_the_same_structure() -> None:
    tensors = [torch.ones(1), torch.ones(1)]
    as_list, as_tuple = tree.flatten(tensors, []), tree.flatten(tuple(tensors), [])
    assert tree.same_structure(as_list, as_tuple)
    assert not tree.same_structure(as_list, tree.flatten(tensors[:1], []))
    assert not tree.same_structure(as_list, tree.flatten([tensors[0], None], []))


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(TypeError, match="is a set, which can be neither passed nor returned"):
        tree.flatten({1, 2}, [])
