"""What an endpoint's error means: wait and try again, ask for less, or give up."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import openai

from kernelwright.agent.llm.redact import redact
from kernelwright.agent.llm.reply import Outcome

LONGEST_WAIT_S = 120.0
"""A server that asks for more is not waited for."""
LONGEST_MESSAGE = 300
"""Characters of a server's words that are shown and stored."""

_TRANSIENT = {408, 409, 425, 429}
_NO_MONEY = {"insufficient_quota", "billing_hard_limit_reached", "insufficient_balance"}
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context (window|length|size)|prompt is too long|too many tokens",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"(?:maximum context length|context (?:window|length|size))\D{0,40}?(\d{3,})", re.IGNORECASE)


class CutShort(openai.OpenAIError):
    """A stream ended before its reply did, or the body is no completion."""


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to wait: its `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date.

    None where it says nothing that can be read. RFC 9110, section 10.2.3.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - (now or datetime.now(UTC))).total_seconds(), 0.0)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 else None


def wait_asked_s(error: BaseException) -> float | None:
    """What `retry_after_s` says of an error's response."""
    return retry_after_s(error.response.headers) if isinstance(error, openai.APIStatusError) else None


def worth_another_try(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, openai.APIStatusError):
        if is_out_of_money(error) or (wait_asked_s(error) or 0.0) > LONGEST_WAIT_S:
            return False
        return error.status_code in _TRANSIENT or error.status_code >= 500
    return isinstance(error, openai.OpenAIError)


def is_out_of_money(error: openai.APIStatusError) -> bool:
    """Whether the account has nothing left: no waiting helps."""
    return error.code in _NO_MONEY or error.type in _NO_MONEY or error.status_code == 402


def used_nothing(error: BaseException) -> bool:
    """Whether the request was certainly not worked on: it was answered by an error, or never got there."""
    unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
    return isinstance(error, openai.APIStatusError) or isinstance(error.__cause__, unsent)


def is_too_long(error: openai.APIStatusError) -> bool:
    """Whether the prompt and the wanted reply are more than the model's context holds."""
    about_length = error.code == "context_length_exceeded" or _TOO_LONG.search(_words(error))
    return error.status_code == 413 or (error.status_code in (400, 422) and bool(about_length))


def context_tokens(error: openai.APIStatusError) -> int | None:
    """How many tokens the model's context holds, where the error says so."""
    found = _CONTEXT.search(_words(error))
    return int(found[1]) if found else None


def outcome_of(error: openai.OpenAIError) -> Outcome:
    """The one word for an error."""
    if isinstance(error, openai.APITimeoutError):
        return Outcome.TIMEOUT
    if isinstance(error, openai.APIStatusError):
        if is_too_long(error):
            return Outcome.TOO_LONG
        if error.status_code >= 500:
            return Outcome.BROKEN
        return Outcome.BUSY if error.status_code in _TRANSIENT else Outcome.REFUSED
    if isinstance(error, openai.APIConnectionError) and used_nothing(error):
        return Outcome.UNREACHABLE
    return Outcome.BROKEN


def described(error: openai.OpenAIError) -> str:
    """One line for a person, without secrets: the status and the server's own words."""
    if isinstance(error, openai.APITimeoutError):
        return "no answer within the time limit"
    if isinstance(error, openai.APIStatusError):
        wait = wait_asked_s(error)
        asked = f", asks to wait {wait:.0f} s" if wait is not None else ""
        return f"HTTP {error.status_code}{asked}: {_words(error)}"
    if isinstance(error, openai.APIConnectionError):
        return _line(f"connection failed: {error.__cause__ or error}")
    return _line(str(error))


def _words(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        said = body.get("message") or body.get("detail") or body
        return _line(said if isinstance(said, str) else json.dumps(said))
    return _line(str(body or error.message))


def _line(text: str) -> str:
    # Redacted before it is cut: half a key is a secret too.
    return " ".join(redact(text).split())[:LONGEST_MESSAGE]
