"""A prompt as sections that know how much they matter, and how many tokens a text takes.

No tokenizer is loaded: each endpoint has its own, and few of them can be had. English and source code take three to
four characters a token with today's vocabularies; 3.5 is what sizes are told by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

CHARACTERS_PER_TOKEN = 3.5
BYTES_PER_TOKEN_AT_WORST = 2.0
"""What money is reserved by: text that is denser than this has few words in it, and no kernel is such a text."""
TOKENS_AROUND = 16
"""Of the two messages: their roles and separators."""

REQUIRED = 100
"""Priority of a section that is never dropped."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text takes: its characters over 3.5, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def most_tokens(text: str) -> int:
    """What a text takes at most, for reserving: its UTF-8 bytes over 2, rounded up."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN_AT_WORST)


@dataclass(frozen=True)
class Section:
    """A part of a prompt."""

    name: str
    """Said where the section is dropped: `failed attempts`, `card tiling`."""
    text: str
    priority: int = REQUIRED
    """The lower, the sooner it is dropped; `REQUIRED` and above never are."""


@dataclass(frozen=True)
class Prompt:
    """What is sent: a system message, and the sections as the user's message, in their order."""

    sections: tuple[Section, ...]
    system: str = ""
    dropped: tuple[str, ...] = ()
    """Names of the sections that were left out to fit."""

    @property
    def user(self) -> str:
        """The sections, an empty line between them."""
        return "\n\n".join(section.text for section in self.sections)

    @property
    def text(self) -> str:
        """All of it, as it is stored."""
        return f"{self.system}\n\n{self.user}" if self.system else self.user

    @property
    def tokens(self) -> int:
        """About how many tokens it takes."""
        return estimate_tokens(self.text) + TOKENS_AROUND

    @property
    def most_tokens(self) -> int:
        """How many it takes at most."""
        return most_tokens(self.text) + TOKENS_AROUND

    def messages(self) -> list[dict[str, str]]:
        """The messages of a chat completion."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.user}]

    def shrunk(self, tokens: int) -> Prompt | None:
        """Without the least of its sections, so that it takes at most `tokens`; None where no section may go.

        The lowest priority goes first, and of equal ones the last. Where dropping all that may go is not enough, they
        are dropped all the same: the estimate may be wrong, and the endpoint has the last word.
        """
        droppable = [i for i, section in enumerate(self.sections) if section.priority < REQUIRED]
        if not droppable:
            return None
        shrunk = self
        for i in sorted(droppable, key=lambda i: (self.sections[i].priority, -i)):
            if shrunk.dropped != self.dropped and shrunk.tokens <= tokens:
                break
            shrunk = replace(
                shrunk,
                sections=tuple(s for s in shrunk.sections if s is not self.sections[i]),
                dropped=(*shrunk.dropped, self.sections[i].name),
            )
        return shrunk
