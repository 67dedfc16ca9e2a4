"""Runs the trials of a bench in processes on this machine's GPUs; Ray's are in on_ray.py.

A trial that fails stops no other.
"""

import hashlib
import math
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import UsageError, VramcastError
from vramcast.hardware import nvml
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed
from vramcast.processes.progress import Progress, Report
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome
from vramcast.records.measurement import Device
from vramcast.records.store import locked_folder

# compiling a large model takes minutes
MAX_SILENT_SECONDS = 1800.0
# torch's first optimizer imports torch._dynamo, which takes seconds: better once than in every
# trial
IMPORTED_ONCE = ("torch", "vramcast.benching.trainer", "torch._dynamo")


class Worker(AbstractContextManager["Worker"], ABC):
    """Trains trials one after another, each in a process of its own."""

    def __exit__(self, *_: object) -> None:
        """Ends everything that runs."""

    @abstractmethod
    def train(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        """The progress of one trial until it has written its result."""

    @abstractmethod
    def stop(self) -> None:
        """Called from another thread: whoever waits for progress gets a TaskFailed of kind
        STOPPED."""


@dataclass(frozen=True)
class Machine:
    gpu: str | None  # its name in vramcast's list; None if it is not listed
    workers: Callable[[int], list[Worker]]  # makes the workers for so many trials


class Silence:
    """How long a trial has reported nothing: a GPU that hangs must not hold up the others for
    ever."""

    def __init__(self) -> None:
        self._since, self._longest_seconds = time.monotonic(), 0.0

    def end(self) -> None:
        now = time.monotonic()
        self._longest_seconds = max(self._longest_seconds, now - self._since)
        self._since = now

    @property
    def limit_seconds(self) -> float:
        return max(MAX_SILENT_SECONDS, 20 * self._longest_seconds)

    @property
    def is_too_long(self) -> bool:
        return time.monotonic() - self._since > self.limit_seconds


class LocalWorker(Worker):
    def __init__(self, gpu: str | None = None) -> None:
        environment = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self._server = ForkServer(IMPORTED_ONCE, environment)
        self._stopped = threading.Event()

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def stop(self) -> None:
        self._stopped.set()

    def train(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        silence = Silence()
        training = self._server.follow(
            "vramcast.benching.trainer:train_trial",
            request,
            timeout_seconds=math.inf,
            log=TrialFolder(Path(request["folder"])).log,
            stop=lambda: self._stopped.is_set() or silence.is_too_long,
        )
        try:
            with closing(training):
                for reached in training:
                    silence.end()
                    yield reached
        except TaskFailed as failure:
            if failure.kind is not FailureKind.STOPPED or self._stopped.is_set():
                raise
            what = f"No step ended within {silence.limit_seconds:,.0f} s: it was stopped."
            raise TaskFailed(FailureKind.TIMEOUT, what, failure.printed) from None


def this_machine(device: Device) -> Machine:
    if device == Device.CPU:
        return Machine(None, lambda _: [LocalWorker()])
    return Machine(nvml.gpu_here(), lambda num: [LocalWorker(gpu) for gpu in gpus_here()[:num]])


def gpus_here() -> list[str | None]:
    """The GPUs of CUDA_VISIBLE_DEVICES, or all that are like the first; [None] if there is only
    one."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    visible = [name.strip() for name in shown if name.strip()]
    if not visible:
        states = nvml.gpu_states()
        visible = [state.uuid for state in states if state.name == states[0].name]
    return [*visible] if len(visible) > 1 else [None]


def run_trials(
    trials: Sequence[BenchTrial],
    out: Path,
    workers: Sequence[Worker],
    options: dict[str, Any],
    *,
    force: bool,
    progress: Report,
) -> list[TrainedRun]:
    """Trains the trials. Those that ended earlier are not trained again. `options` go to
    `train_trial` for every trial."""
    # two benches at a time would train the same trials, or remove each other's files
    with locked_folder(out):
        folders = [TrialFolder(out / folder_name(trial)) for trial in trials]
        # All are checked first: an error must come before hours of training.
        for trial, folder in zip(trials, folders, strict=True):
            folder.check(trial, force=force)
        runs = [folder.result() for folder in folders]
        for folder, run in zip(folders, runs, strict=True):
            if run is not None and run.finished:
                folder.remove_checkpoints()
        one_at_a_time = threading.Lock()

        def tell(reached: Progress) -> None:
            with one_at_a_time:
                progress(reached)

        def train(index: int, worker: Worker) -> None:
            trial, folder = trials[index], folders[index]
            folder.begin(trial, options["lock_seconds"])
            request = {"trial": trial.to_dict(), "folder": str(folder.path.absolute()), **options}
            runs[index] = finished_run(trial, folder, worker.train(request), tell)

        unfinished = [index for index, run in enumerate(runs) if run is None or not run.finished]
        run_everywhere([partial(train, index) for index in unfinished], workers)
        return [run for run in runs if run is not None]


def folder_name(trial: BenchTrial) -> str:
    """A readable name that is different for any two trials of a bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def finished_run(
    trial: BenchTrial, folder: TrialFolder, training: Generator[Any, None, None], progress: Report
) -> TrainedRun:
    error, name = "The process ended without a result.", f"{trial.label} seed {trial.seed}"
    try:
        with closing(training):
            for reached in training:
                progress(Progress(name, reached["fraction"], 1.0, reached["detail"]))
        run = folder.result()
        if run is not None:
            return run
    except TaskFailed as failure:
        if failure.kind is FailureKind.STOPPED:
            raise
        error = failure.message
    except VramcastError as problem:
        if isinstance(problem, UsageError):
            folder.forget()
        raise type(problem)(f"{trial.label}: {problem.message}", problem.advice) from None
    run = TrainedRun(trial=trial, outcome=TrainingOutcome.CRASHED, environment={}, error=error)
    folder.write_result(run)
    return run


def run_everywhere(jobs: Sequence[Callable[[Worker], None]], workers: Sequence[Worker]) -> None:
    """Runs every job on one of the workers. If one fails, all are stopped."""
    free: SimpleQueue[Worker] = SimpleQueue()
    has_failed = threading.Event()

    def serve(job: Callable[[Worker], None]) -> None:
        worker = free.get()
        try:
            if not has_failed.is_set():
                job(worker)
        except BaseException:
            # a thread may take its next job before the others learn of the failure
            has_failed.set()
            raise
        finally:
            free.put(worker)

    with ExitStack() as entered, ThreadPoolExecutor(len(workers)) as threads:
        for worker in workers:
            free.put(entered.enter_context(worker))
        try:
            for served in as_completed([threads.submit(serve, job) for job in jobs]):
                served.result()
        except BaseException:  # also an interruption of this thread
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()
            raise
