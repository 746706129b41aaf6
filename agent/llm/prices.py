"""What tokens cost: a dated table that ships with the package, and a file of the user's that overrides it."""

from __future__ import annotations

import datetime
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernelwright.kernelbench.errors import UsageError

SHIPPED = Path(__file__).parent / "prices.toml"
VARIABLE = "KERNELWRIGHT_PRICES"

_Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """USD for a million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: _Usd
    output: _Usd
    cached: _Usd | None = None
    """Of prompt tokens that the endpoint had in its cache; None: as `input`."""
    cache_write: _Usd | None = None
    """Of prompt tokens that the endpoint put into its cache; None: as `input`."""
    date: datetime.date | None = None
    """As of when."""
    source: str = ""
    """The page it was read from."""

    def cost_usd(self, tokens_in: int, tokens_out: int, tokens_cached: int = 0, tokens_written: int = 0) -> float:
        """What a call cost. Cached and written tokens are among `tokens_in`."""
        plain = max(tokens_in - tokens_cached - tokens_written, 0)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        total = plain * self.input + tokens_cached * cached + tokens_written * written + tokens_out * self.output
        return total / 1e6

    def worst_usd(self, tokens_in: int, tokens_out: int) -> float:
        """The most that so many tokens can cost, whatever the endpoint's cache does."""
        dearest = max(self.input, self.cached or 0.0, self.cache_write or 0.0)
        return (tokens_in * dearest + tokens_out * self.output) / 1e6


@dataclass(frozen=True)
class Prices:
    """Prices by the exact name of the model: another snapshot or another vendor's copy may cost more."""

    by_model: Mapping[str, Price]

    def of(self, model: str) -> Price | None:
        """The price of a model, if it is known."""
        return self.by_model.get(model)

    def require(self, models: Iterable[str]) -> None:
        """Raise UsageError unless all have a price: a limit in USD would hold nothing otherwise."""
        unknown = sorted({m for m in models if m not in self.by_model})
        if unknown:
            raise UsageError(
                f"--budget-usd: no price is known for {', '.join(unknown)}; give it in a file by --prices or {VARIABLE}"
                " (the form is that of kernelwright/agent/llm/prices.toml), or use --budget-tokens"
            )


def load_prices(override: Path | None = None) -> Prices:
    """The shipped table, with the rows of `override` (else of the file that KERNELWRIGHT_PRICES names) in their place.

    Raises UsageError naming the file and the row where the override is no such table.
    """
    named = override or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    return Prices(_read(SHIPPED) | (_read(named) if named else {}))


def _read(path: Path) -> dict[str, Price]:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a table of prices: {error}") from None
    models = table.get("models")
    if set(table) != {"models"} or not isinstance(models, dict):
        raise UsageError(f'{path}: not a table of prices: rows are named [models."NAME"]')
    return {name: _price(path, name, row) for name, row in models.items()}


def _price(path: Path, name: str, row: object) -> Price:
    try:
        return Price.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((name, *map(str, first["loc"])))
        raise UsageError(
            f'{path}: {where}: {first["msg"].lower()} (a dotted name needs quotes: [models."gpt-5.5"])'
        ) from None
