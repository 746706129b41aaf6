"""Ends a run whose endpoint is down, instead of letting every slot find that out by itself."""

from __future__ import annotations

import threading

from kernelwright.agent.llm.faults import EndpointFault

FAILURES_IN_A_ROW = 5
"""Calls, each after all its retries: one that failed at once says little when eight are under way."""


class Breaker:
    """Counts failed calls in a row. Once open it stays open: the run ends, and is resumed by a person."""

    def __init__(self, endpoint: str, limit: int = FAILURES_IN_A_ROW) -> None:
        self.opened = threading.Event()
        """Wakes those who wait for their next try."""
        self._endpoint = endpoint
        self._limit = limit
        self._lock = threading.Lock()
        self._failures = 0
        self._message = ""

    def succeeded(self) -> None:
        """A call brought its reply."""
        with self._lock:
            self._failures = 0

    def failed(self, message: str) -> None:
        """A call brought none. It is told so itself; from the last of so many on, `check` refuses the others."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._limit and not self.opened.is_set():
                self._open(f"{self._failures} calls in a row failed, the last one so: {message}")

    def open(self, message: str) -> None:
        """Give up at once."""
        with self._lock:
            self._open(message)

    def check(self) -> None:
        """Raise EndpointFault when it is open."""
        if self.opened.is_set():
            raise EndpointFault(self._message)

    def _open(self, message: str) -> None:
        self._message = f"model endpoint {self._endpoint}: {message}"
        self.opened.set()
