"""The task that really runs a trial, and what its exceptions stand for."""

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

from vramcast.errors import VramcastError
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.records.base import plain_value
from vramcast.records.measurement import Device, MemoryOf, Outcome
from vramcast.text import printable

# how kernels and libraries say that this machine or build cannot do it
UNSUPPORTED = (
    "no kernel image is available",
    "not implemented for",
    "is not supported on",
    "not compiled with",
    "requires a gpu with",
    "requires compute capability",
)
# "driver error" is how expandable segments say it; libraries have words of their own
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
MAX_ERROR_CHARACTERS = 8000


def work(request: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """The task: facts are told as they are known, and all of them are the answer."""
    report = Reporter(tell)
    try:
        _run(Trial.from_dict(request["trial"]), request["target"], report)
        report.facts.outcome = Outcome.OK
    except VramcastError:
        raise
    except BaseException as error:
        # also SystemExit: a step that ends the program has not done its work
        for name, value in failure(error)._asdict().items():
            setattr(report.facts, name, value)
    return report.facts.to_dict()


def _run(trial: Trial, target: str, report: Reporter) -> None:
    from vramcast.probing.on_cpu import CpuRun
    from vramcast.probing.on_gpu import GpuRun
    from vramcast.workload import bind_knobs, load_function, parse_reference

    report.phase(Phase.LOADING)
    run = (CpuRun if trial.device == Device.CPU else GpuRun)(trial, report)
    with run.around():
        function = load_function(parse_reference(target))
        knobs = bind_knobs(function, trial.knobs)
        report.facts.knobs = {key: plain_value(value) for key, value in knobs.items()}
        report.tell()
        run.go(function, knobs)


class Failure(NamedTuple):
    outcome: Outcome
    error: str
    out_of_memory_on: MemoryOf | None


def failure(error: BaseException) -> Failure:
    """The outcome an exception stands for."""
    from vramcast.workload import user_traceback

    name = type(error).__name__
    try:
        text = str(error)
        is_error = isinstance(error, Exception)
        where = user_traceback(error) if is_error else f"{name}: {text}"
    except Exception:  # a user's __str__ may itself raise
        text, where = "", name
    outcome, memory = classify(error, text)
    return Failure(outcome, printable(where, MAX_ERROR_CHARACTERS), memory)


def classify(error: BaseException, message: str) -> tuple[Outcome, MemoryOf | None]:
    """(outcome, whose memory ran out) of an exception by its type and its text."""
    name, message = type(error).__name__, message.lower()

    def says(texts: tuple[str, ...]) -> bool:
        return any(text in message for text in texts)

    if name == "OutOfMemoryError" or says(GPU_MEMORY):
        return Outcome.OUT_OF_MEMORY, MemoryOf.GPU
    is_full = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if isinstance(error, MemoryError) or is_full or says(HOST_MEMORY):
        return Outcome.OUT_OF_MEMORY, MemoryOf.HOST
    if name in ("NotImplementedError", "ModuleNotFoundError") or says(UNSUPPORTED):
        return Outcome.UNSUPPORTED, None
    return Outcome.CRASHED, None
