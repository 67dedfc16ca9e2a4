"""The forked process in which a trial really runs: facts go out over the progress pipe as they are known, the whole at the end."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from vramcast.errors import VramcastError
from vramcast.probing.trial import Trial

# texts by which kernels and libraries say that this machine or build cannot do it, whatever the memory
UNSUPPORTED = (
    *("no kernel image is available", "not implemented for", "is not supported on", "not compiled with"),
    *("requires a gpu with", "requires compute capability"),
)
HOST_MEMORY = ("defaultcpuallocator: can't allocate memory", "defaultcpuallocator: not enough memory")


class Reporter:
    """Sends facts to the manager; what is sent stays known when this process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.facts: dict[str, Any] = {"step_seconds": [], "losses": [], "warmup_step_seconds": []}

    def phase(self, name: str) -> None:
        self._send({"phase": name})

    def tell(self, **facts: Any) -> None:
        self.facts.update(facts)
        self._send({"facts": facts})

    def step(self, *, warm: bool, seconds: float | None, loss: float | None) -> None:
        """A step has ended; `seconds` is None where it was not timed."""
        self._send({"step": {"warm": warm, "seconds": seconds, "loss": loss}})
        add_step(self.facts, warm=warm, seconds=seconds, loss=loss)

    def _send(self, value: dict[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(value).encode() + b"\n")


def add_step(facts: dict[str, Any], *, warm: bool, seconds: float | None, loss: float | None) -> None:
    if seconds is not None:
        facts["step_seconds" if warm else "warmup_step_seconds"].append(seconds)
    facts["losses"].append(loss)


def work(request: dict[str, Any], result: int, progress: int) -> None:
    report = Reporter(progress)
    try:
        _run(Trial(**request), report)
        report.facts.setdefault("outcome", "ok")
    except VramcastError as error:
        report.facts["usage_error"] = {"message": error.message, "advice": error.advice, "exit_code": error.exit_code}
    except BaseException as error:  # also SystemExit: a step that ends the program has not done its work
        report.facts.update(failure(error))
    with os.fdopen(result, "w") as file:
        file.write(f"\n{json.dumps(report.facts)}\n")


def _run(trial: Trial, report: Reporter) -> None:
    from vramcast.workload import bind_knobs, load_function, parse_reference

    report.phase("loading")
    started = time.perf_counter()
    run = _runner(trial, report)
    with run.around():
        function = load_function(parse_reference(trial.workload))
        knobs = bind_knobs(function, trial.knobs_text, trial.knobs)
        report.tell(knobs={key: _plain(value) for key, value in knobs.items()}, import_seconds=time.perf_counter() - started)
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

    text = f"{type(error).__name__}: {error}"
    where = user_traceback(error) if isinstance(error, Exception) else text
    kind, memory = classify(type(error).__name__, str(error), isinstance(error, MemoryError))
    return {"outcome": kind, "error": where or text, "out_of_memory_on": memory}


def classify(name: str, message: str, is_memory_error: bool = False) -> tuple[str, str | None]:
    """(outcome, whose memory ran out) of an exception by its type's name and its text."""
    lower = message.lower()
    if name == "OutOfMemoryError" or "cuda error: out of memory" in lower or "cublas_status_alloc_failed" in lower:
        return "out_of_memory", "gpu"
    if is_memory_error or any(text in lower for text in HOST_MEMORY):
        return "out_of_memory", "host"
    if name in ("NotImplementedError", "ModuleNotFoundError") or any(text in lower for text in UNSUPPORTED):
        return "unsupported", None
    return "crashed", None


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)
