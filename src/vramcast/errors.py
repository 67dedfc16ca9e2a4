"""What can go wrong, by who can put it right.

    VramcastError            any of these; carries the exit code
    ├── UsageError           the request is wrong, a name, a size, a setting: exit code 2
    │   └── WorkloadError    the workload cannot be found, built or stepped
    └── EnvironmentProblem   the machine lacks something: exit code 1

A message says what is wrong and with which value; `advice` says what to do next.
"""


class VramcastError(Exception):
    exit_code = 1

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n{self.advice}" if self.advice else self.message


class UsageError(VramcastError):
    exit_code = 2


class WorkloadError(UsageError):
    pass


class EnvironmentProblem(VramcastError):
    pass
