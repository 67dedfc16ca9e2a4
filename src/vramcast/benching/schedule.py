"""Runs all trials of a bench, one after another on every GPU; a trial that fails stops no other."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.benching.workers import Worker
from vramcast.errors import UsageError, VramcastError
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.processes.progress import Progress, Report
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome


def run_trials(
    trials: Sequence[BenchTrial],
    out: Path,
    workers: Sequence[Worker],
    options: dict[str, Any],
    *,
    force: bool,
    progress: Report,
) -> list[TrainedRun]:
    """What ended earlier is not trained again. `options` go to `train_trial` for every trial."""
    folders = [TrialFolder(out / folder_name(trial)) for trial in trials]
    # All of them first: a refusal must come before hours of training.
    for trial, folder in zip(trials, folders, strict=True):
        folder.check(trial, force=force)
    runs = [folder.result() for folder in folders]
    one_at_a_time = threading.Lock()

    def tell(reached: Progress) -> None:
        with one_at_a_time:
            progress(reached)

    def train(index: int, worker: Worker) -> None:
        trial, folder = trials[index], folders[index]
        folder.begin(trial)
        request = {"trial": trial.to_dict(), "folder": str(folder.path.absolute()), **options}
        runs[index] = finished_run(trial, folder, worker.train(request), tell)

    unfinished = [index for index, run in enumerate(runs) if run is None or not run.finished]
    run_everywhere([partial(train, index) for index in unfinished], workers)
    return [run for run in runs if run is not None]


def folder_name(trial: BenchTrial) -> str:
    """Readable, and never the same for two trials of one bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def finished_run(
    trial: BenchTrial, folder: TrialFolder, training: Generator[Any, None, None], progress: Report
) -> TrainedRun:
    """Waits until the trial has ended."""
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
    """Every job on one of the workers. What one raises stops all of them and is raised here."""
    free: SimpleQueue[Worker] = SimpleQueue()

    def serve(job: Callable[[Worker], None]) -> None:
        worker = free.get()
        try:
            job(worker)
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
