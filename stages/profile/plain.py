"""What a candidate's process says goes into a prompt and onto a terminal: only plain words and true numbers."""

from __future__ import annotations

import math
from typing import Any

LONGEST = 240
"""Characters that are kept."""


def words(value: Any) -> str:
    """The printable ASCII of a text, in one line of bounded length."""
    text = " ".join(str(value).split())
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:LONGEST]


def number(value: Any) -> float:
    """A finite number that is not negative. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{words(value)!r} is no figure")
    return float(value)


def count(value: Any) -> int | None:
    """A whole number that is not negative, or None. Raises ValueError for anything else."""
    return None if value is None else int(number(value))
