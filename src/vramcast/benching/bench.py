"""`vramcast.bench` and `vramcast.compare`: train models under one protocol, and compare them."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.benching.compare import compare_runs
from vramcast.benching.data import Corpus, default_corpus
from vramcast.benching.models import models_to_train
from vramcast.benching.on_ray import RAY_LOCK_SECONDS, ray_cluster
from vramcast.benching.protocol import find_protocol, with_steps, within_documents
from vramcast.benching.trial_folder import find_runs
from vramcast.benching.workers import run_trials, this_machine
from vramcast.errors import EnvironmentProblem, UsageError, VramcastError
from vramcast.hardware import nvml
from vramcast.hardware.environment import require_package
from vramcast.predicting.max_batch import max_batch
from vramcast.probing.trial import device_named
from vramcast.processes.progress import Report, ignore
from vramcast.records.bench import BenchTrial, Comparison, DataIdentity, Protocol, TrainedRun
from vramcast.records.measurement import Device
from vramcast.records.store import LOCK_SECONDS
from vramcast.workload import parse_reference

WORKLOAD = "vramcast.benching.training_step:build"
# The fraction of memory left free where the largest batch is wanted: long runs fragment memory.
SAFETY = 0.05
MAX_SEEDS = 10_000


def bench(
    models: Sequence[str],
    *,
    out: str | os.PathLike[str],
    protocol: str | Protocol = "standard",
    data: str | os.PathLike[str] | None = None,
    steps: int | None = None,
    seeds: str | Sequence[int] | None = None,
    respect_documents: bool = False,
    sweep: str | None = None,
    params: str | int | None = None,
    device: str = "cuda",
    ray: str | None = None,
    checkpoint_seconds: float = 60.0,
    tensorboard: bool = False,
    force: bool = False,
    progress: Report = ignore,
) -> list[TrainedRun]:
    """Train every model with every seed, each in a process of its own.

    `bench(["e1-50m", "e5-d1536-r270"], out="runs/first")`. A model is a name of the zoo or
    file.py:function, followed by its knobs as `key=value`. `sweep` makes several out of one model:
    "dim=768,1024", each with `params` parameters. What `out` already holds is not trained again,
    and what was interrupted goes on from its checkpoint. `ray` is the address of a Ray cluster.
    """
    rules = find_protocol(protocol) if isinstance(protocol, str) else protocol
    if steps is not None and steps != rules.steps:
        rules = with_steps(rules, steps)
    if respect_documents and not rules.respect_documents:
        rules = within_documents(rules)
    chosen = models_to_train(models, sweep, params)
    train_on = device_named(device)
    if train_on == Device.CUDA and ray is None:
        nvml.require_gpu("train on", "Add --device cpu to train on the CPU.")
    # this also refuses NaN, with which every comparison is false
    if not checkpoint_seconds > 0:
        raise UsageError(
            f"--checkpoint-seconds must be above zero, not {checkpoint_seconds:g}.",
            "For example --checkpoint-seconds 60.",
        )
    if tensorboard and ray is None:
        require_package("tensorboard", "--tensorboard")
    path = default_corpus() if data is None else Path(data)
    corpus = Corpus(path)
    corpus.check_window(rules.seq_len + 1)
    identity = corpus.identity()
    numbers = _seeds(seeds, rules)
    with (
        nullcontext(this_machine(train_on)) if ray is None else ray_cluster(ray, train_on, path)
    ) as machine:
        trials = []
        for name, knobs in chosen:
            trial = _trial(name, knobs, rules, identity, train_on)
            trial = with_batch_size(trial, machine.gpu)
            trials += [replace(trial, seed=seed) for seed in numbers]
        return run_trials(
            trials,
            Path(out),
            machine.workers(len(trials)),
            {
                "data_path": str(path.absolute()),
                "checkpoint_seconds": checkpoint_seconds,
                "tensorboard": tensorboard,
                "lock_seconds": LOCK_SECONDS if ray is None else RAY_LOCK_SECONDS,
            },
            force=force,
            progress=progress,
        )


def _trial(
    name: str, knobs: dict[str, str], rules: Protocol, data: DataIdentity, device: Device
) -> BenchTrial:
    """A trial with the protocol's seed, and no batch size yet."""
    return BenchTrial(
        model=name,
        knobs=knobs,
        model_hash=parse_reference(name).file_hash(),
        protocol=rules,
        protocol_hash=rules.hash,
        seed=rules.seed,
        data=data,
        device=device,
        batch_size=1,
    )


def compare(*runs: str | os.PathLike[str]) -> Comparison:
    """Which model is better, and whether that is real. Runs are folders of bench or of a trial."""
    return compare_runs([run for path in runs for run in find_runs(Path(path))])


def _seeds(seeds: str | Sequence[int] | None, protocol: Protocol) -> list[int]:
    if seeds is None:
        return [protocol.seed]
    try:
        numbers = [int(seed) for seed in (seeds.split(",") if isinstance(seeds, str) else seeds)]
    except ValueError:
        numbers = []
    if not numbers or len({seed for seed in numbers if 0 <= seed < 2**63}) < len(numbers):
        raise UsageError(
            f"--seeds {str(seeds)[:200]!r} is not a list of different whole numbers from 0 on.",
            "For example --seeds 1,2,3.",
        )
    if len(numbers) > MAX_SEEDS:
        raise UsageError(
            f"--seeds are {len(numbers):,}; at most {MAX_SEEDS:,} are trained.", "Give fewer."
        )
    return numbers


def with_batch_size(trial: BenchTrial, gpu: str | None) -> BenchTrial:
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
    """The predicted largest batch, within limits of `max_batch`. Raises an error if not even one
    sample fits."""
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
        return  # a model that cannot be simulated may still train
    if largest < wanted:
        raise EnvironmentProblem(
            f"{trial.label} does not fit on {gpu} with the protocol's batch of {wanted} "
            f"(predicted); {largest} fits.",
            f"Give a protocol file with batch_size = {largest} for all models, "
            "or the knob checkpointing=true if the model has it.",
        )
