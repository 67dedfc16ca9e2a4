"""All trials of a bench, each in a process of its own; whatever a trial does, the others go on, and nothing is left running."""

from __future__ import annotations

import hashlib
import re
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vramcast.benching.places import Place, run_everywhere
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import EnvironmentProblem, VramcastError, WorkloadError
from vramcast.records.bench import TrainedRun, Trial
from vramcast.text import printable

USAGE = 2  # the exit code of wrong usage
NUM_LINES = 8  # of what a process that died has printed last
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
    for trial, folder in zip(
        trials, folders, strict=True
    ):  # all of them first: a refusal comes before hours of training
        folder.check(trial, force=force)
    runs = [folder.result() for folder in folders]
    one_at_a_time = threading.Lock()

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
        end: dict[str, Any] = {}
        for news in place.news(request):
            if "progress" in news:
                with one_at_a_time:
                    progress(trial, news["progress"])
            else:
                end |= news
        runs[index] = ended(trial, folder, end)

    run_everywhere(
        [index for index, run in enumerate(runs) if run is None or not run.finished], places, train
    )
    return [run for run in runs if run is not None]


def folder_name(trial: Trial) -> str:
    """For people, and never the same for two trials of one bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def ended(trial: Trial, folder: TrialFolder, end: dict[str, Any]) -> TrainedRun:
    """What a trial that has ended has left."""
    if "error" in end:
        problem = end["error"]
        if problem["exit_code"] == USAGE:
            folder.forget()
        kinds: dict[int, type[VramcastError]] = {USAGE: WorkloadError, 1: EnvironmentProblem}
        raise kinds.get(problem["exit_code"], VramcastError)(
            f"{trial.label}: {problem['message']}", problem["advice"]
        )
    run = folder.result() if "outcome" in end else None
    if run is None:
        run = TrainedRun(
            trial=trial,
            outcome="crashed",
            environment={},
            error=end.get("lost") or _last_words(end["ended"], folder.log),
        )
        folder.write_result(run)
    return run


def _last_words(code: int, log: Path) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    try:
        lines = printable(log.read_bytes()[-8000:].decode(errors="replace")).strip().splitlines()
    except OSError:
        lines = []
    return "\n".join([f"The process ended with {how}.", *lines[-NUM_LINES:]])
