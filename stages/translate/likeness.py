"""How alike two problems are, from the text that an archive keeps of them: no tracing, no torch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from kernelwright.stages.translate.signature import VIEWS

_CALL = re.compile(r"\baten\.(\w+)")
_HEAD = re.compile(r"\[(?P<dtype>\S+)(?: (?P<shape>[^\]]*))?\]")


@dataclass(frozen=True)
class Traits:
    """What a kernel for a problem depends on."""

    signature: str
    """As `stages.translate.signature` makes it: operators, dtypes and classes of all shapes."""
    functional: str
    """The forward as text over `torch.ops.aten`."""

    @cached_property
    def operators(self) -> Counter[str]:
        """Each operator that computes (aten name without overload) and how often it is called; no views."""
        return Counter(name for name in _CALL.findall(self.functional) if name not in VIEWS)

    @cached_property
    def dtype(self) -> str:
        """Of the first tensor, short: `f32`."""
        return self._head("dtype")

    @cached_property
    def shape(self) -> str:
        """The class of the first tensor's shape: `a13xb9`."""
        return self._head("shape")

    def _head(self, part: str) -> str:
        found = _HEAD.search(self.signature)
        return (found and found[part]) or ""


def likeness(one: Traits, other: Traits) -> float:
    """Shared operator calls over all operator calls of both (the Jaccard index of multisets): 0 to 1."""
    everything = (one.operators | other.operators).total()
    return (one.operators & other.operators).total() / everything if everything else 0.0
