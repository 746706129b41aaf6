"""The prompts, one Jinja2 file each, and what writes them.

A line `<<name priority>>` begins a section: where a model's context is too small, the sections of the lowest priority
are dropped first, and those of priority 100 never.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernelwright.agent.llm.prompt import Prompt, Section

MOST_TOKENS = 24_000
"""A prompt is kept below this, by its sections' priorities."""
_SECTION = re.compile(r"^<<(?P<name>[^<>]+) (?P<priority>\d+)>>$", re.MULTILINE)
_GAPS = re.compile(r"\n{3,}")


def render(name: str, **facts: Any) -> Prompt:
    """The prompt of a template. Every fact that a template names must be given: what is missing is an error."""
    text = _templates().get_template(f"{name}.j2").render(**facts)
    first, *rest = _SECTION.split(text)
    sections = tuple(
        Section(section, body, int(priority))
        for section, priority, body in zip(rest[::3], rest[1::3], map(_tidy, rest[2::3]), strict=True)
        if body
    )
    prompt = Prompt(sections, system=_tidy(first))
    return prompt if prompt.tokens <= MOST_TOKENS else prompt.shrunk(MOST_TOKENS) or prompt


def _tidy(text: str) -> str:
    return _GAPS.sub("\n\n", text).strip()


@cache
def _templates() -> Environment:
    loader = PackageLoader("kernelwright.agent.prompts", "")
    return Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
