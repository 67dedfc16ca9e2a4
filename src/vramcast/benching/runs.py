"""All trials of a bench, each in a process of its own: one that fails does not stop the others."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from vramcast.benching.places import Place, run_everywhere
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import UsageError, VramcastError
from vramcast.processes.ask import TaskFailed
from vramcast.records.bench import TrainedRun, Trial

Progress = Callable[[Trial, dict[str, Any]], None]


def run_trials(
    trials: Sequence[Trial],
    out: Path,
    data_path: Path,
    places: Sequence[Place],
    *,
    checkpoint_seconds: float,
    tensorboard: bool,
    force: bool,
    progress: Progress,
) -> list[TrainedRun]:
    """What has ended in an earlier run of the same bench is read, not trained again."""
    folders = [TrialFolder(out / folder_name(trial)) for trial in trials]
    # all of them first: a refusal comes before hours of training
    for trial, folder in zip(trials, folders, strict=True):
        folder.check(trial, force=force)
    runs = [folder.result() for folder in folders]
    one_at_a_time = threading.Lock()

    def told(trial: Trial, far: dict[str, Any]) -> None:
        with one_at_a_time:
            progress(trial, far)

    def train(index: int, place: Place) -> None:
        trial, folder = trials[index], folders[index]
        folder.begin(trial)
        request = {
            "trial": trial.to_dict(),
            "folder": str(folder.path.absolute()),
            "data_path": str(data_path.absolute()),
            "checkpoint_seconds": checkpoint_seconds,
            "tensorboard": tensorboard,
        }
        runs[index] = followed(trial, folder, place.news(request), told)

    run_everywhere(
        [index for index, run in enumerate(runs) if run is None or not run.finished], places, train
    )
    return [run for run in runs if run is not None]


def folder_name(trial: Trial) -> str:
    """For people, and never the same for two trials of one bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def followed(
    trial: Trial, folder: TrialFolder, news: Generator[Any, None, None], progress: Progress
) -> TrainedRun:
    """A trial to its end, and what it has left."""
    error = "The process ended without a result."
    try:
        with contextlib.closing(news):
            for far in news:
                progress(trial, far)
        run = folder.result()
        if run is not None:
            return run
    except TaskFailed as failure:
        error = failure.message
    except VramcastError as problem:
        if isinstance(problem, UsageError):
            folder.forget()
        raise type(problem)(f"{trial.label}: {problem.message}", problem.advice) from None
    run = TrainedRun(trial=trial, outcome="crashed", environment={}, error=error)
    folder.write_result(run)
    return run
