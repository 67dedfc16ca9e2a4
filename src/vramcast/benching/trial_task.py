"""The task of a worker process: train one trial. Its results are files in the trial's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramcast.benching.data import Corpus
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.hardware import environment
from vramcast.probing.worker import failure
from vramcast.records.bench import BenchTrial, TrainedRun, TrainingOutcome

Tell = Callable[[Any], None]


def train_trial(request: dict[str, Any], tell: Tell) -> str:
    """The outcome. The request has trial, folder, data_path, checkpoint_seconds, tensorboard."""
    trial, folder = BenchTrial.from_dict(request["trial"]), TrialFolder(Path(request["folder"]))
    where = describe_environment(trial.device)
    try:
        with folder.lock():
            run = _train(trial, folder, request, where, tell)
    except VramcastError:
        raise
    except BaseException as problem:
        # also SystemExit: a model that ends the program has not done its work
        found = failure(problem)
        outcome = TrainingOutcome(found.outcome)
        run = TrainedRun(trial=trial, outcome=outcome, environment=where, error=found.error)
    folder.write_result(run)
    return run.outcome


def _train(
    trial: BenchTrial,
    folder: TrialFolder,
    request: dict[str, Any],
    where: dict[str, Any],
    tell: Tell,
) -> TrainedRun:
    from vramcast.benching.trainer import Trainer

    corpus = Corpus(Path(request["data_path"]))
    if corpus.identity() != trial.data:
        raise EnvironmentProblem(
            f"The data file {corpus.path} is not the one that was given.",
            "Leave it as it is while it is in use.",
        )
    seconds, tensorboard = request["checkpoint_seconds"], request["tensorboard"]
    return Trainer(trial, corpus, folder, seconds, where, tell, tensorboard).run()


def describe_environment(device: str) -> dict[str, Any]:
    import torch

    return {
        **environment.describe(Path.cwd()),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "torch_version": torch.__version__,
        "schedulefree_version": environment.package_version("schedulefree"),
    }
