"""Runs all trials of a bench, one after another on every GPU; a trial that fails stops no other."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from vramcast.benching.trial_folder import TrialFolder
from vramcast.benching.workers import Stopped, Worker
from vramcast.errors import UsageError, VramcastError
from vramcast.processes.ask import TaskFailed
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome

Job = TypeVar("Job")
TrialProgress = Callable[[BenchTrial, dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a bench asks of all its trials and what is no part of their records."""

    data_path: Path
    checkpoint_seconds: float
    tensorboard: bool

    def request(self, trial: BenchTrial, folder: Path) -> dict[str, Any]:
        return {
            "trial": trial.to_dict(),
            "folder": str(folder.absolute()),
            "data_path": str(self.data_path.absolute()),
            "checkpoint_seconds": self.checkpoint_seconds,
            "tensorboard": self.tensorboard,
        }


def run_trials(
    trials: Sequence[BenchTrial],
    out: Path,
    workers: Sequence[Worker],
    options: Options,
    *,
    force: bool,
    progress: TrialProgress,
) -> list[TrainedRun]:
    """What has ended in an earlier run of the same bench is read, not trained again."""
    folders = [TrialFolder(out / folder_name(trial)) for trial in trials]
    # All of them first: a refusal must come before hours of training.
    for trial, folder in zip(trials, folders, strict=True):
        folder.check(trial, force=force)
    runs = [folder.result() for folder in folders]
    one_at_a_time = threading.Lock()

    def tell(trial: BenchTrial, reached: dict[str, Any]) -> None:
        with one_at_a_time:
            progress(trial, reached)

    def train(index: int, worker: Worker) -> None:
        trial, folder = trials[index], folders[index]
        folder.begin(trial)
        training = worker.train(options.request(trial, folder.path))
        runs[index] = finished_run(trial, folder, training, tell)

    unfinished = [index for index, run in enumerate(runs) if run is None or not run.finished]
    run_everywhere(unfinished, workers, train)
    return [run for run in runs if run is not None]


def folder_name(trial: BenchTrial) -> str:
    """Readable, and never the same for two trials of one bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def finished_run(
    trial: BenchTrial,
    folder: TrialFolder,
    training: Generator[Any, None, None],
    progress: TrialProgress,
) -> TrainedRun:
    """Wait until the trial has ended, and read its result."""
    error = "The process ended without a result."
    try:
        with contextlib.closing(training):
            for reached in training:
                progress(trial, reached)
        run = folder.result()
        if run is not None:
            return run
    except TaskFailed as failure:
        error = failure.message
    except VramcastError as problem:
        if isinstance(problem, UsageError):
            folder.forget()
        raise type(problem)(f"{trial.label}: {problem.message}", problem.advice) from None
    run = TrainedRun(trial=trial, outcome=TrainingOutcome.CRASHED, environment={}, error=error)
    folder.write_result(run)
    return run


def run_everywhere(
    jobs: Sequence[Job], workers: Sequence[Worker], do: Callable[[Job, Worker], None]
) -> None:
    """Every job on one of the workers.

    What one raises stops all of them and is raised here. Nothing is left running.
    """
    waiting: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def serve(worker: Worker) -> None:
        with worker, contextlib.suppress(Empty, Stopped):
            while True:
                do(waiting.get_nowait(), worker)

    with ThreadPoolExecutor(len(workers)) as threads:
        try:
            serving = [threads.submit(serve, worker) for worker in workers[: len(jobs)]]
            for served in as_completed(serving):
                served.result()
        except BaseException:  # of one of them, or an interruption of this thread
            for worker in workers:
                worker.stop()
            raise
