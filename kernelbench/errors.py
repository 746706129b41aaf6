"""The two exceptions that reach a person. Everything a candidate does wrong is a Verdict, not an exception."""


class KernelwrightError(Exception):
    """Base of the errors that end a command with one clear line."""


class UsageError(KernelwrightError):
    """What the user gave cannot be used: the message says what is wrong and where (`file:line: ...`). Exit code 2."""


class EnvironmentFault(KernelwrightError):
    """What this machine lacks: the message says what is missing and the remedy. Exit code 3."""
