"""The errors of vramcast, by who can correct them.

A message says what is wrong and with which value; `advice` says what to do next.
"""


class VramcastError(Exception):
    """Any error of vramcast; `exit_code` is the exit code of a command."""

    exit_code = 1

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n{self.advice}" if self.advice else self.message


class UsageError(VramcastError):
    """The request is wrong: a name, a size, a setting."""

    exit_code = 2


class WorkloadError(UsageError):
    """The workload cannot be found, built or stepped."""


class EnvironmentProblem(VramcastError):
    """The machine lacks something the job needs."""
