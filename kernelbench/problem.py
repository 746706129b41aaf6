"""The problem: a PyTorch reference in KernelBench's contract, addressed by the hash of its source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Precision(StrEnum):
    """What a task's result may be computed in."""

    STRICT = "strict"
    """The error against float64 is at most a small multiple of eager's own under torch's default flags."""
    TF32 = "tf32"
    """Matrix products may round their operands to TF32, as eager does with `allow_tf32`."""
    TASK = "task"
    """What rounding at each step to the task's own dtype may cost, or the task's stated TOLERANCE."""


@dataclass(frozen=True)
class Problem:
    """A self-contained Python source that defines `Model`, `get_inputs()` and `get_init_inputs()`.

    The source may also define `TOLERANCE` (a relative error that the task allows, instead of the one derived from the
    dtype) and `SHAPES` (named overrides of its own module-level numbers, for example `{"gpu": {"rows": 65536}}`).
    A chosen shape is already written into `source`, so the hash tells shapes apart.
    """

    name: str
    source: str
    origin: str
    """Where it came from, for messages: a path, or `core/rmsnorm`."""
    shape: str | None = None
    """The label in `SHAPES` that `source` was specialised to, or None for the file as it stands."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the source, 64 hexadecimal digits."""
        return hashlib.sha256(self.source.encode()).hexdigest()
