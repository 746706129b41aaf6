"""Where replies come from: one file each for those who write kernels when they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelwright.agent.llm.models import Role
from kernelwright.agent.llm.prompt import Prompt
from kernelwright.stages.archive.calls import Place


@dataclass(frozen=True)
class Question:
    """What somebody is asked, and for which place of the run."""

    place: Place
    role: Role
    prompt: Prompt


class Source(Protocol):
    """Answers questions."""

    name: str
    """What `--proposer` calls it."""

    def replies(self, questions: Sequence[Question]) -> list[str | None]:
        """A reply for each question, None where it brought none. The same questions get the same replies again.

        Raises BudgetSpent, EndpointFault or Waiting where the run cannot go on now.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...
