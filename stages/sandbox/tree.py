"""Nested arguments and results as a JSON description plus a flat list of tensors."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import torch

SCALAR_TOLERANCE = 1e-5
"""Relative: how far a returned Python float may be from the reference's, which has rounded too."""
_Tensor = torch.Tensor
_DICTIONARIES = (dict, collections.OrderedDict)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Describe `value` (lists, tuples, dicts, numbers, strings, None, tensors), appending its tensors to `tensors`.

    Raises TypeError for anything else.
    """
    if isinstance(value, _Tensor):
        # A subclass may compute when it is looked at, or lie about itself.
        if type(value) not in _PLAIN:
            raise TypeError(f"is a {type(value).__name__}, a subclass of torch.Tensor, and must be a plain tensor")
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        # JSON has no nan or inf; the hexadecimal form keeps every bit.
        return {"float": value.hex()}
    # A subclass may compute its content when it is looked at; of a tuple's, as torch.topk returns, that is passed by.
    if type(value) is list:
        return {"list": [flatten(v, tensors) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [flatten(v, tensors) for v in tuple.__iter__(value)]}
    if type(value) in _DICTIONARIES:
        # In the order of keys, for it is by key that they are read.
        return {"dict": [[k, flatten(value[k], tensors)] for k in sorted(value, key=repr)]}
    raise TypeError(f"is a {type(value).__name__}, which can be neither passed nor returned")


def unflatten(description: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `flatten`."""
    ((kind, content),) = description.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "float":
        return float.fromhex(content)
    if kind == "list":
        return [unflatten(v, tensors) for v in content]
    if kind == "tuple":
        return tuple(unflatten(v, tensors) for v in content)
    if kind == "dict":
        return {k: unflatten(v, tensors) for k, v in content}
    raise ValueError(f"unknown kind {kind!r}")


def alias(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> int | None:
    """The number of the first of `others` whose memory the tensor begins in, or None."""
    at = tensor.data_ptr()
    for number, other in enumerate(others):
        start = other.data_ptr()
        if tensor.numel() and start <= at < start + extent_bytes(other):
            return number
    return None


def shared(tensors: Sequence[torch.Tensor]) -> list[str | None]:
    """For each tensor how it shares memory, in words: with an earlier one, or its elements with each other."""
    found: list[str | None] = []
    for number, tensor in enumerate(tensors):
        first = alias(tensor, tensors[:number])
        if any(step == 0 and n > 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
            found.append("several elements lie in one place (a stride of 0)")
        else:
            found.append(None if first is None else f"it lies in that of output {first}")
    return found


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element, both included."""
    if tensor.numel() == 0:
        return 0
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (1 + steps) * tensor.element_size()


def same_structure(a: Any, b: Any) -> bool:
    """Whether two descriptions nest alike; a tuple and a list of the same length count as alike."""
    (kind_a, a_content), (kind_b, b_content) = next(iter(a.items())), next(iter(b.items()))
    sequences = {"list", "tuple"}
    if kind_a in sequences and kind_b in sequences:
        return len(a_content) == len(b_content) and all(map(same_structure, a_content, b_content))
    if kind_a != kind_b:
        return False
    if kind_a == "dict":
        return [k for k, _ in a_content] == [k for k, _ in b_content] and all(
            same_structure(v, w) for (_, v), (_, w) in zip(a_content, b_content, strict=True)
        )
    if kind_a == "float":
        a_value, b_value = float.fromhex(a_content), float.fromhex(b_content)
        return math.isclose(a_value, b_value, rel_tol=SCALAR_TOLERANCE) or (math.isnan(a_value) and math.isnan(b_value))
    return bool(a_content == b_content)
