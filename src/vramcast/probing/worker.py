"""The forked process in which a trial really runs: facts go out over the progress pipe as they are known, the whole at the end."""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any

from vramcast.errors import VramcastError
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.records.base import plain_value
from vramcast.records.measurement import MemoryOf, Outcome
from vramcast.text import printable

# texts by which kernels and libraries say that this machine or build cannot do it, whatever the memory
UNSUPPORTED = (
    *(
        "no kernel image is available",
        "not implemented for",
        "is not supported on",
        "not compiled with",
    ),
    *("requires a gpu with", "requires compute capability"),
)
# "driver error" is how expandable segments say it; libraries that allocate for themselves have their own words
GPU_MEMORY = (
    "cuda error: out of memory",
    "cuda driver error: out of memory",
    "_status_alloc_failed",
    "cufft_alloc_failed",
)
HOST_MEMORY = (
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "unable to mmap",
)


MOST_ERROR_CHARACTERS = 8000


class Pipe:
    """One end of a pipe to the manager. A workload that closes every descriptor may get the number again for a file of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._made = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def send(self, value: dict[str, Any]) -> None:
        if self._identity() != self._made:
            raise OSError("the workload has closed the pipe to vramcast")
        line = (
            f"\n{json.dumps(value)}\n".encode()
        )  # a line of its own: others may have written into the pipe
        while line:
            line = line[os.write(self._descriptor, line) :]


def work(request: dict[str, Any], result: int, progress: int) -> None:
    report, answer = Reporter(Pipe(progress).send), Pipe(result)
    try:
        _run(Trial.from_dict(request), report)
        report.facts.outcome = Outcome.OK
    except VramcastError as error:
        refusal = {"message": error.message, "advice": error.advice, "exit_code": error.exit_code}
        answer.send({"usage_error": refusal})
        return
    except BaseException as error:
        # also SystemExit: a step that ends the program has not done its work
        found = failure(error)
        report.facts.outcome, report.facts.error = found["outcome"], found["error"]
        report.facts.out_of_memory_on = found["out_of_memory_on"]
    result_message = {"facts": report.facts.to_dict()}
    answer.send(result_message)


def _run(trial: Trial, report: Reporter) -> None:
    from vramcast.workload import bind_knobs, load_function, parse_reference

    report.phase(Phase.LOADING)
    started = time.perf_counter()
    run = _runner(trial, report)
    with run.around():
        function = load_function(parse_reference(trial.workload))
        knobs = bind_knobs(function, trial.knobs)
        report.facts.knobs = {key: plain_value(value) for key, value in knobs.items()}
        report.facts.import_seconds = time.perf_counter() - started
        report.tell()
        run.go(function, knobs)


def _runner(trial: Trial, report: Reporter) -> Any:
    if trial.device == "cpu":
        from vramcast.probing.on_cpu import CpuRun

        return CpuRun(trial, report)
    from vramcast.probing.on_gpu import GpuRun

    return GpuRun(trial, report)


def failure(error: BaseException) -> dict[str, Any]:
    """The outcome an exception stands for."""
    from vramcast.workload import user_traceback

    try:
        text = str(error)
        where = (
            user_traceback(error)
            if isinstance(error, Exception)
            else f"{type(error).__name__}: {text}"
        )
    except Exception:  # a user's __str__ may itself raise
        text, where = "", type(error).__name__
    host = isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )
    kind, memory = classify(type(error).__name__, text, host)
    return {
        "outcome": kind,
        "error": printable(where, MOST_ERROR_CHARACTERS),
        "out_of_memory_on": memory,
    }


def classify(
    name: str, message: str, is_host_memory: bool = False
) -> tuple[Outcome, MemoryOf | None]:
    """(outcome, whose memory ran out) of an exception by its type's name and its text."""
    lower = message.lower()
    if name == "OutOfMemoryError" or any(text in lower for text in GPU_MEMORY):
        return Outcome.OUT_OF_MEMORY, MemoryOf.GPU
    if is_host_memory or any(text in lower for text in HOST_MEMORY):
        return Outcome.OUT_OF_MEMORY, MemoryOf.HOST
    if name in ("NotImplementedError", "ModuleNotFoundError") or any(
        text in lower for text in UNSUPPORTED
    ):
        return Outcome.UNSUPPORTED, None
    return Outcome.CRASHED, None
