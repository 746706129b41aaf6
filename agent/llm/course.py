"""A call on its way: the prompt as it is now, what it has used, and the reply that a server's parts make up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kernelwright.agent.llm.budget import Amounts
from kernelwright.agent.llm.errors import CutShort
from kernelwright.agent.llm.prices import Price
from kernelwright.agent.llm.prompt import Prompt, estimate_tokens
from kernelwright.agent.llm.reply import Bill
from kernelwright.stages.archive.calls import Usage

OF_ITS_CONTEXT, OF_ITS_LENGTH = 0.9, 0.6
"""What a prompt is shrunk to when it does not fit: nine tenths of the room that the server says it has beside the
reply; six tenths of its length where the server does not say."""


@dataclass(frozen=True)
class Request:
    """What to ask, and whom."""

    model: str
    prompt: Prompt
    max_output_tokens: int = 16_384
    """Thoughts included, where the model has any."""
    temperature: float | None = None
    """None: the model's own."""


@dataclass(frozen=True)
class Answer:
    """What one request brought."""

    text: str
    finish_reason: str
    usage: Usage
    usd: float
    """0 where the price is not known."""


class Course:
    """One call. Used by one thread."""

    def __init__(self, request: Request, price: Price | None) -> None:
        self.request = request
        self.prompt = request.prompt
        self.requests = 0
        self._price = price
        self._shrunk = False
        self._usage = Usage(0, 0, 0)
        self._usd = 0.0
        self._started = time.monotonic()

    @property
    def worst(self) -> Usage:
        """The most that the next request may use."""
        return Usage(self.prompt.most_tokens, 0, self.request.max_output_tokens, estimated=True)

    @property
    def worst_usd(self) -> float:
        """The most that the next request may cost; 0 where the price is not known."""
        return self._price.worst_usd(self.worst.tokens_in, self.worst.tokens_out) if self._price else 0.0

    def add(self, usage: Usage, usd: float) -> None:
        """Count a request that was worked on."""
        before = self._usage
        self._usage = Usage(
            before.tokens_in + usage.tokens_in,
            before.tokens_cached + usage.tokens_cached,
            before.tokens_out + usage.tokens_out,
            before.estimated or usage.estimated,
        )
        self._usd += usd

    def bill(self) -> Bill:
        """What the call has used so far."""
        cost_usd = None if self._price is None else self._usd
        return Bill(self._usage, cost_usd, self.requests, time.monotonic() - self._started)

    def worst_bill(self) -> Bill:
        """What the next request may come to."""
        return Bill(self.worst, None if self._price is None else self.worst_usd, 0, 0.0)

    def shrink(self, context_tokens: int | None) -> bool:
        """Drop the least sections of the prompt, once a call; whether there were any. `context_tokens` as the server
        says it, None where it does not."""
        room = 0 if context_tokens is None else context_tokens - self.request.max_output_tokens
        length = self.prompt.tokens
        aim = int(OF_ITS_CONTEXT * min(room, length)) if room > 0 else int(OF_ITS_LENGTH * length)
        shorter = None if self._shrunk else self.prompt.shrunk(aim)
        if shorter is None:
            return False
        self.prompt, self._shrunk = shorter, True
        return True

    def answer(self, parts: list[Any]) -> Answer:
        """The reply that chunks of a stream make up, or one whole completion. Raises CutShort when it is no reply."""
        try:
            return self._joined(parts)
        except (AttributeError, TypeError) as error:
            # The SDK does not check what a server sends: another shape shows only where it is read.
            raise CutShort(f"what came is no chat completion: {error}") from None

    def _joined(self, parts: list[Any]) -> Answer:
        said: list[str] = []
        thought: list[str] = []
        finish, counted = "", None
        for part in parts:
            counted = part.usage or counted
            for choice in part.choices or ():
                piece = choice.delta if hasattr(choice, "delta") else choice.message
                said.append(piece.content or piece.refusal or "")
                thought.append(getattr(piece, "reasoning_content", None) or "")
                finish = choice.finish_reason or finish
        if not finish:
            raise CutShort("the stream ended before the reply did")
        text = "".join(said)
        if counted is None:
            usage = Usage(self.prompt.tokens, 0, estimate_tokens(text + "".join(thought)), estimated=True)
            usd = self._price.worst_usd(usage.tokens_in, usage.tokens_out) if self._price else 0.0
            return Answer(text, finish, usage, usd)
        details = counted.prompt_tokens_details
        cached = (details.cached_tokens or 0) if details else 0
        written = (details.cache_write_tokens or 0) if details else 0
        usage = Usage(counted.prompt_tokens, cached, counted.completion_tokens)
        usd = self._price.cost_usd(usage.tokens_in, usage.tokens_out, cached, written) if self._price else 0.0
        return Answer(text, finish, usage, usd)


def amounts(usage: Usage, usd: float) -> Amounts:
    """What a budget counts of a request."""
    return Amounts(usd=usd, tokens=usage.tokens_in + usage.tokens_out)
