"""What a call gives: a reply, or why there is none; and in both cases what it used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelwright.agent.llm.prompt import Prompt
from kernelwright.kernelbench.errors import KernelwrightError
from kernelwright.stages.archive.calls import OK, Usage


class Outcome(StrEnum):
    """How a call ended."""

    OK = OK
    BUSY = "busy"
    """Too many requests (429), still so at the last try."""
    BROKEN = "broken"
    """The server failed (5xx), cut its stream, or sent what is no reply."""
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """The server will not answer this request, and asking again would not change that."""
    TOO_LONG = "too_long"
    """The prompt does not fit the model's context, even without what may be dropped."""
    STOPPED = "stopped"
    """By our own doing: the budget was spent, or other calls found the endpoint down."""


@dataclass(frozen=True)
class Bill:
    """What a call used, all its requests together. A request that broke off counts at its worst."""

    usage: Usage
    cost_usd: float | None
    """None where the model has no known price."""
    requests: int
    """HTTP requests."""
    seconds: float
    """Wall time, waiting included."""


@dataclass(frozen=True)
class Reply:
    """A model's words."""

    text: str
    model: str
    prompt: Prompt
    """As it was sent: without the sections that were dropped to fit."""
    finish_reason: str
    """`stop`; `length` where the reply was cut off at the most output tokens."""
    bill: Bill

    @property
    def truncated(self) -> bool:
        """Whether the model had more to say than it was allowed to."""
        return self.finish_reason == "length"


class CallFailed(KernelwrightError):
    """One call brought no reply. Whoever asked goes on without it."""

    def __init__(self, outcome: Outcome, message: str, prompt: Prompt, bill: Bill) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.prompt = prompt
        self.bill = bill
