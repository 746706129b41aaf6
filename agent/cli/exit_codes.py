"""What the exit status of every verb means."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Documented in README.md; a test holds the two equal."""

    GOAL_MET = 0
    GOAL_NOT_MET = 1
    """It ran, but found no correct and faster kernel, or verify said that a candidate is not correct."""
    USAGE = 2
    ENVIRONMENT = 3
    BUDGET_SPENT = 4
    """The best so far is kept."""
    ENDPOINT_DOWN = 5
    TAMPERING = 6
    WAITING = 75
    """For replies that were handed off."""
    INTERRUPTED = 130
    """The run can be resumed."""
