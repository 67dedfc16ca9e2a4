"""Predicts before training whether the protocol's batch fits, or which is the largest that does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.predicting.max_batch import max_batch
from vramcast.records.bench import BenchTrial

WORKLOAD = "vramcast.benching.training_step:build"
# Left free where the largest batch is asked for: long runs fragment memory.
SAFETY = 0.05


def with_batch_size(trial: BenchTrial, gpu: str | None) -> BenchTrial:
    """The trial with the batch that it is trained with."""
    wanted = trial.protocol.batch_size
    if wanted is None:
        if gpu is None:
            raise UsageError(
                f"The protocol {trial.protocol.name!r} takes the largest batch that fits, "
                "and the memory of the device is not known.",
                "Train on a GPU that vramcast gpus lists, "
                "or give a protocol file with a batch_size.",
            )
        return replace(trial, batch_size=largest_batch(trial, gpu=gpu, safety=SAFETY))
    if gpu is not None:
        _check_fits(trial, wanted, gpu)
    return replace(trial, batch_size=wanted)


def largest_batch(trial: BenchTrial, *, gpu: str, **limits: Any) -> int:
    """Predicted, within limits of `max_batch`; an error where not even one sample fits."""
    found = max_batch(WORKLOAD, gpu=gpu, confirm=False, trial=trial.to_json(), **limits)
    if found.largest_batch is None:
        raise EnvironmentProblem(
            f"{trial.label} does not fit on {gpu} with even one sample of "
            f"{trial.protocol.seq_len} tokens (predicted).",
            " ".join(found.advice) or "Choose a smaller model or a larger GPU.",
        )
    return found.largest_batch


def _check_fits(trial: BenchTrial, wanted: int, gpu: str) -> None:
    try:
        largest = largest_batch(trial, gpu=gpu, maximum=wanted)
    except EnvironmentProblem:
        raise
    except VramcastError:
        return  # what cannot be simulated may still train
    if largest < wanted:
        raise EnvironmentProblem(
            f"{trial.label} does not fit on {gpu} with the protocol's batch of {wanted} "
            f"(predicted); {largest} fits.",
            f"Give a protocol file with batch_size = {largest} for all models, "
            "or the knob checkpointing=true if the model has it.",
        )
