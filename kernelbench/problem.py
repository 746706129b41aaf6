"""The problem: a PyTorch reference in KernelBench's contract, addressed by the hash of its source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


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
