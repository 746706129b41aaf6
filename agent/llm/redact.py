"""Keeps secrets out of whatever is sent, stored, logged or shown.

A secret is the value of an environment variable that is named like one (`..._KEY`, `..._TOKEN`, `..._SECRET`,
`..._PASSWORD`), a credential inside a URL, and whatever has the form of a bearer token. Values of fewer than 12
characters are left alone: local servers take words such as `none` for a key, and those occur in code.
"""

from __future__ import annotations

import json
import logging
import os
import re
from urllib.parse import parse_qsl, quote, urlsplit

MASK = "[redacted]"
SHORTEST_SECRET = 12

_NAMED_LIKE_A_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_URLS_WITH_CREDENTIALS = ("OPENAI_BASE_URL",)
_HEADERS = "OPENAI_CUSTOM_HEADERS"
_FORMS = re.compile(r"\bsk-[A-Za-z0-9_-]{16,}|(?<=Bearer )[A-Za-z0-9._~+/=-]{12,}")


def redact(text: str) -> str:
    """The text with every secret of this process's environment masked, as it stands or as JSON or a URL quote it."""
    for secret in _secrets():
        text = text.replace(secret, MASK)
    return _FORMS.sub(MASK, text)


class RedactingFilter(logging.Filter):
    """Masks secrets in a logger's records: its message with its arguments, and the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record; every record passes."""
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = record.exc_text and redact(record.exc_text)
        return True


def _secrets() -> list[str]:
    """Longest first, so that a secret which contains another one goes as a whole."""
    plain = {value for name, value in os.environ.items() if _NAMED_LIKE_A_SECRET.search(name)}
    for name in _URLS_WITH_CREDENTIALS:
        plain |= _credentials(os.environ.get(name, ""))
    plain |= {line.partition(":")[2].strip() for line in os.environ.get(_HEADERS, "").splitlines()}
    long = {value.strip() for value in plain if len(value.strip()) >= SHORTEST_SECRET}
    written = {form for value in long for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])}
    return sorted(written, key=lambda value: (-len(value), value))


def _credentials(url: str) -> set[str]:
    """User, password and query values of a URL."""
    try:
        parts = urlsplit(url)
        return {value for value in (parts.username, parts.password) if value} | {v for _, v in parse_qsl(parts.query)}
    except ValueError:
        return set()
