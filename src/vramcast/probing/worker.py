"""The task that really runs a trial, and the meaning of its exceptions."""

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from vramcast.errors import VramcastError
from vramcast.probing.facts import Phase, Reporter
from vramcast.probing.trial import Trial
from vramcast.processes.child import cut
from vramcast.records.base import plain_value
from vramcast.records.measurement import Device, MemoryOf, Outcome
from vramcast.workload import (
    bind_knobs,
    load_function,
    parse_reference,
    refusals,
    user_traceback,
)
from vramcast.workload.launch_line import LaunchLine, typed_knobs
from vramcast.workload.launchers import read_line
from vramcast.workload.tracebacks import exception_line, exception_text

# messages of kernels and libraries that this machine or build cannot do it
UNSUPPORTED = (
    "no kernel image is available",
    "not implemented for",
    "is not supported on",
    "not compiled with",
    "requires a gpu with",
    "requires compute capability",
)
# expandable segments say "driver error"; libraries have other messages
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


def work(request: dict[str, Any], tell: Callable[[Any], None]) -> None:
    """The task. Its only answer is the facts that it reports."""
    report = Reporter(tell)
    try:
        trial = Trial.from_dict(request["trial"])
        if trial.line:
            _run_program(trial, request["scratch"], report)
        _run(trial, request["target"], report)
    except VramcastError:
        raise
    except BaseException as error:
        # also SystemExit: a step that ends the program has not done its work
        report.tell(failed_at_seconds=time.monotonic())
        outcome, memory, text = failure(error)
        report.tell(outcome=outcome, out_of_memory_on=memory, error=text)
    else:
        report.tell(outcome=Outcome.OK)


def _run(trial: Trial, target: str, report: Reporter) -> None:
    from vramcast.probing.on_cpu import CpuRun
    from vramcast.probing.on_gpu import GpuRun

    report.tell(phase=Phase.LOADING)
    run = (CpuRun if trial.device == Device.CPU else GpuRun)(trial, report)
    with run.around():
        function = load_function(parse_reference(target))
        knobs = bind_knobs(function, trial.knobs)
        report.tell(knobs={key: plain_value(value) for key, value in knobs.items()})
        with refusals():
            run.go(function, knobs)


def _run_program(trial: Trial, scratch: str, report: Reporter) -> NoReturn:
    from vramcast.probing.program import MeasuredProgram

    report.tell(phase=Phase.LOADING, knobs=typed_knobs(trial.knobs))
    program = read_line(LaunchLine(trial.line).filled(trial.knobs))
    program = replace(program, environment={**program.environment, **trial.variables})
    MeasuredProgram(trial, report, program, Path(scratch)).go()


def failure(error: BaseException) -> tuple[Outcome, MemoryOf | None, str]:
    """The outcome that an exception means, whose memory ran out, and the text to be shown."""
    shown = user_traceback(error) if isinstance(error, Exception) else exception_line(error)
    return *classify(error, exception_text(error)), cut(shown)


def classify(error: BaseException, message: str) -> tuple[Outcome, MemoryOf | None]:
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
