"""The structured probes: values that each make one kind of mistake visible. To add one, add it to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelwright.stages.verify import transforms
from kernelwright.stages.verify.domains import Domain

Change = Callable[[torch.Tensor, Domain, torch.Generator], torch.Tensor]


@dataclass(frozen=True)
class Probe:
    """One structured case: how every floating argument is changed, and what a failure on it means."""

    label: str
    why: str
    change: Change
    specials: bool = False
    short: bool = False
    """Whether the short series has it."""
    bounded: Change | None = None
    """The same for arguments that must stay within their range; None: those are left as they are."""


def _within(values: torch.Tensor, limits: Domain) -> torch.Tensor:
    return values if limits.free else values.clamp(0.0, limits.peak)


PROBES = (
    Probe(
        "eight times as large",
        "right only for the magnitudes that get_inputs draws",
        lambda x, d, g: transforms.scaled(x, 8.0),
        short=True,
    ),
    Probe(
        "offset by 1000",
        "an algorithm that cancels, such as a variance found in one pass",
        lambda x, d, g: transforms.shifted(x, 1000.0),
        short=True,
    ),
    Probe(
        "constant",
        "a step that fails when all values are equal",
        lambda x, d, g: transforms.constant(x, 0.5),
    ),
    Probe(
        "one value in each row",
        "elements that are skipped, or padding that is counted",
        lambda x, d, g: transforms.one_hot(x, d.peak, g),
        bounded=lambda x, d, g: transforms.one_hot(x, min(d.peak, 1.0), g),
    ),
    Probe(
        "denormals and signed zeros",
        "a division or logarithm without care for tiny values",
        lambda x, d, g: transforms.tiny(x, g),
    ),
    Probe(
        "inf and nan",
        "values that spread to where the reference has none",
        lambda x, d, g: transforms.with_specials(x, g),
        specials=True,
    ),
    Probe(
        "many equal values",
        "ties that are resolved wrongly",
        lambda x, d, g: _within(transforms.with_ties(x, d.spread), d),
        bounded=lambda x, d, g: _within(transforms.with_ties(x, d.spread), d),
    ),
    Probe(
        "sorted rows",
        "an assumption that large values are spread evenly",
        lambda x, d, g: transforms.ordered(x),
        bounded=lambda x, d, g: transforms.ordered(x),
    ),
    Probe(
        "rows of unlike magnitude",
        "precision that only large values get",
        lambda x, d, g: transforms.uneven_rows(x, g),
    ),
)
