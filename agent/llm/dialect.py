"""Which parameters a model on this endpoint takes: sent until the endpoint refuses one, and never again after that."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

DROPPABLE = ("temperature", "stream_options", "stream")
"""Without these a call is still the same call."""
LIMITS = ("max_completion_tokens", "max_tokens")
"""Two names of one parameter. It is renamed and never dropped: no budget would hold without it."""

_UNSUPPORTED_CODES = {"unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"}
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|does not support|unrecogni[sz]ed|unknown|unexpected|extra (input|field)|not permitted"
    r"|not allowed|only the default",
    re.IGNORECASE,
)


class Dialect:
    """What each model was found to refuse. Safe to use from several threads."""

    def __init__(self, newest_limit_first: bool) -> None:
        """`newest_limit_first`: for the vendor that renamed the parameter; other servers may ignore the new name."""
        self._limits = LIMITS if newest_limit_first else LIMITS[::-1]
        self._refused: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def parameters(self, model: str, max_output_tokens: int, temperature: float | None) -> dict[str, Any]:
        """What to send beside model and messages."""
        with self._lock:
            refused = set(self._refused[model])
        limit = next((name for name in self._limits if name not in refused), self._limits[-1])
        wanted = {
            limit: max_output_tokens,
            "temperature": temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if "stream" in refused:
            del wanted["stream_options"]
        return {name: value for name, value in wanted.items() if value is not None and name not in refused - {limit}}

    def learn(self, model: str, sent: Mapping[str, Any], code: str | None, named: str | None, message: str) -> bool:
        """Whether a refusal (400, 422) was about a parameter that the next try will not send; remember which.

        `code` and `named` are the error's own `code` and `param`, where it has them.
        """
        culprit = _culprit(sent, code, named, message)
        if culprit is None:
            return False
        with self._lock:
            refused = self._refused[model]
            refused.add(culprit)
            return not set(LIMITS) <= refused


def _culprit(sent: Mapping[str, Any], code: str | None, named: str | None, message: str) -> str | None:
    """The parameter that was sent and is said to be unsupported; the one that is named first."""
    if code not in _UNSUPPORTED_CODES and not _UNSUPPORTED.search(message):
        return None
    mine = [name for name in (*DROPPABLE, *LIMITS) if name in sent]
    for name in mine:
        if named and re.split(r"[.\[]", named)[0] == name:
            return name
    found = {name: match.start() for name in mine if (match := re.search(rf"\b{name}\b", message))}
    return min(found, key=lambda name: found[name], default=None)
