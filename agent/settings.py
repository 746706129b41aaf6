"""What a run may be told. Command line first, then `KERNELWRIGHT_...` variables, then these defaults."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from kernelwright.kernelbench.errors import UsageError


class RunSettings(BaseSettings):
    """Settings of one run. They are stored with the run, so that a resumed run keeps them."""

    model_config = SettingsConfigDict(env_prefix="KERNELWRIGHT_", frozen=True, extra="forbid")

    device: Literal["cpu", "cuda"] = "cpu"
    """Where candidates are verified and timed."""
    max_candidates: int = Field(24, ge=1)
    """Stop after this many proposals."""
    time_s: float = Field(100.0, gt=0, allow_inf_nan=False)
    """Stop proposing after this many seconds of wall time."""
    generation_size: int = Field(6, ge=1)
    """Proposals a generation: each generation learns from the ones before."""
    patience: int = Field(3, ge=1)
    """Stop after this many generations in a row without a faster candidate."""
    rounds: int = Field(15, ge=5)
    """Interleaved timing rounds a candidate; the winner is measured again with twice as many."""
    seed: int = Field(default_factory=lambda: secrets.randbits(31))
    """Of the inputs and of the search. Drawn anew for each run unless given."""
    proposer: tuple[str, ...] = ("builtin",)
    """Who proposes, in turns: `builtin`, `llm`, `handoff`."""
    models: tuple[str, ...] = ()
    """`NAME[,NAME]` for every role, `ROLE=NAME[,NAME]` for one of translate, propose, diagnose."""
    budget_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    """What the models may cost."""
    budget_tokens: int | None = Field(None, ge=1)
    """Tokens that the models may read and write."""
    device_time_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Stop proposing after candidates have been verified and timed for so many seconds."""
    target: float | None = Field(None, gt=1, allow_inf_nan=False)
    """Stop when a candidate is so many times as fast as eager."""
    prices: Path | None = None
    """A file of prices beside those that are built in."""
    archive: Path = Path("archive.db")
    """The database of candidates, verdicts and times."""
    runs: Path = Path("runs")
    """Folder of the runs' folders."""


def settings_from(given: Mapping[str, Any]) -> RunSettings:
    """Settings from what was given, None standing for 'not given'. Raises UsageError naming the one that is wrong."""
    try:
        return RunSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(f"{name} is {first.get('input')!r}: {first['msg'].lower()}") from None
