"""Replies that somebody else writes: a coding agent, a person, a batch service without a network here.

Each question becomes `handoff/NNNN.prompt.md` in the run's folder. Where a reply is missing the run stops and waits;
`kernelwright resume RUN` reads `NNNN.reply.md` beside it and goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agent.llm.redact import redact
from kernelwright.agent.proposers.source import Question
from kernelwright.kernelbench.errors import KernelwrightError

INDEX = "prompts.json"
"""By place: the prompt's number and the SHA-256 of its text, written before anybody replies."""


class Waiting(KernelwrightError):
    """Replies are missing. Exit code 75: the run goes on when they are there."""


class HandoffSource:
    """Asks by files."""

    name = "handoff"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def close(self) -> None:
        """Nothing is held."""

    def replies(self, questions: Sequence[Question]) -> list[str | None]:
        """As `Source.replies`. Raises Waiting when all prompts are written and a reply is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = [self._number(question) for question in questions]
        found = [_read(self.folder / f"{number:04d}.reply.md") for number in numbers]
        missing = [number for number, reply in zip(numbers, found, strict=True) if reply is None]
        if missing:
            names = ", ".join(f"{number:04d}.prompt.md" for number in missing)
            raise Waiting(f"waiting for replies to {names} in {self.folder}: write each to NNNN.reply.md beside it")
        return found

    def _number(self, question: Question) -> int:
        """The question's number; its prompt is written when it is new."""
        path = self.folder / INDEX
        index = json.loads(path.read_text()) if path.exists() else {}
        place = question.place
        key = f"{place.generation}/{place.slot}/{place.attempt}/{question.role.value}"
        text = redact(question.prompt.text) + "\n"
        if key not in index:
            number = len(index) + 1
            (self.folder / f"{number:04d}.prompt.md").write_text(text)
            index[key] = {"number": number, "sha256": hashlib.sha256(text.encode()).hexdigest()}
            temporary = path.with_suffix(".new")
            temporary.write_text(json.dumps(index, indent=1) + "\n")
            temporary.replace(path)
        return int(index[key]["number"])


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text if text.strip() else None
