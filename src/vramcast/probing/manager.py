"""The parent's side of real runs: sends trials, watches for stalls, makes a record of each.

It never touches CUDA. Whatever happens to a worker, the result is a Measurement.
"""

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.probing.facts import Facts, Phase, Reporter
from vramcast.probing.measurement import measurement_from
from vramcast.probing.stability import stall_threshold_seconds
from vramcast.probing.trial import Trial
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed
from vramcast.programs.scratch import scratch_folder
from vramcast.records.measurement import Measurement
from vramcast.records.store import open_regular
from vramcast.workload import parse_reference
from vramcast.workload.interpreters import interpreter_of
from vramcast.workload.launch_line import LaunchLine
from vramcast.workload.launchers import read_line

# torch's first optimizer imports torch._dynamo, which takes more than a second: better once than in
# every trial
WORKERS_IMPORT = ("vramcast.probing.on_gpu", "vramcast.probing.on_cpu", "torch._dynamo")
# the modules that take most of a package's import time
SLOW = {"transformers": ("transformers.modeling_utils", "transformers.generation")}
OnFacts = Callable[[Facts], None]
OnOutput = Callable[[bytes], None] | None


class Prober(ForkServer):
    """Each trial runs in a fresh process; torch and `preload` are imported once for all."""

    def __init__(self, preload: Sequence[str] = (), **start: Any) -> None:
        super().__init__(["torch", *preload, *WORKERS_IMPORT], **start)

    def run(
        self,
        trial: Trial,
        log: Path | None = None,
        progress: OnFacts = lambda _: None,
        on_output: OnOutput = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Measurement:
        """Runs a trial. Wrong requests (no such file, knob, ...) are raised; every other failure is
        part of the measurement.

        `on_output` receives what a program prints. The run is ended when `stop` returns true.
        """
        started = time.monotonic()
        watch, failure = _Watch(progress), None
        target = "" if trial.line else parse_reference(trial.workload).portable
        # made here, so that it is removed even if the worker is killed
        with scratch_folder() if trial.line else contextlib.nullcontext() as scratch:
            try:
                self.ask(
                    "vramcast.probing.worker:work",
                    {
                        "trial": trial.to_dict(),
                        "target": target,
                        "scratch": None if scratch is None else str(scratch),
                    },
                    timeout_seconds=trial.timeout_seconds,
                    log=log,
                    progress=watch.hear,
                    stop=lambda: watch.is_stalled() or stop(),
                    on_output=on_output,
                )
            except TaskFailed as failed:
                if failed.kind is FailureKind.NOT_STARTED:
                    raise
                # a program's process ends without an answer, so its facts are all there is
                failure = failed if watch.facts.outcome is None else None
        return measurement_from(trial, watch.facts, failure, seconds=time.monotonic() - started)


class _Watch(Reporter):
    def __init__(self, progress: OnFacts) -> None:
        super().__init__(self._heard)
        self._progress = progress
        self._last_heard = time.monotonic()

    def _heard(self, news: dict[str, Any]) -> None:
        self._last_heard = time.monotonic()
        self._progress(self.facts)

    def is_stalled(self) -> bool:
        if self.facts.phase is not Phase.MEASURE:
            return False
        known = self.facts.step_seconds or self.facts.warmup_seconds
        return time.monotonic() - self._last_heard > stall_threshold_seconds(known)


def start_of(trial: Trial) -> dict[str, Any]:
    """How Python is started for a program's line: its environment must be set before torch is
    imported."""
    if not trial.line:
        return {}
    program = read_line(LaunchLine(trial.line).filled(trial.knobs))
    return {"environment": program.environment, "python": interpreter_of(program)}


def preload_for(workload: str) -> list[str]:
    """Slow libraries that the workload's file names: they are imported once for all its trials."""
    source = _source(workload)
    named = [name for name in SLOW if name.encode() in source and importlib.util.find_spec(name)]
    return [module for name in named for module in SLOW[name]]


def _source(workload: str) -> bytes:
    """The source of the workload's file, of which nothing is run. Empty where it is not found."""
    reference = parse_reference(workload)
    places = [reference.path] if reference.path is not None else []
    if reference.module is not None:
        # by hand: Python's own search would run the packages on the way
        name = Path(*reference.module.split(".")).with_suffix(".py")
        places = [Path(folder) / name for folder in (os.curdir, *sys.path)]
    for place in places:
        with contextlib.suppress(OSError, UsageError), open_regular(place) as file:
            return file.read(1 << 20)
    return b""
