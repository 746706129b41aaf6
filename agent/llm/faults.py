"""What ends a run that talks to a model. Standard library only: the command line imports this file at once."""

from __future__ import annotations

from kernelwright.kernelbench.errors import EnvironmentFault, KernelwrightError


class EndpointFault(EnvironmentFault):
    """The endpoint is of no use now: what was found is kept, the run can be resumed. Exit code 5."""


class BudgetSpent(KernelwrightError):
    """A limit does not allow what was asked for. Exit code 4, with the best so far kept."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        """Which limit: a field of `agent.llm.budget.Limits`."""
