"""The trials of `vramcast bench`, their protocol and results, and how models compare."""

import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, field
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from vramcast.records.base import AboveZero, Bytes, Count, Number, Part, Record, Seconds, require
from vramcast.records.measurement import Device

FORMAT = 1  # the format of protocols; it is hashed with the values
# Runs that differ in one of these are not compared.
DECISIVE = ("device", "gpu", "torch_version", "schedulefree_version")

FromOne = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ZeroOrMore = Annotated[float, msgspec.Meta(ge=0, le=1e100)]


class OptimizerName(StrEnum):
    ADAMW_SCHEDULEFREE = "adamw-schedulefree"
    ADAMW = "adamw"


class Precision(StrEnum):
    BF16 = "bf16"  # weights, gradients and optimizer state too
    AMP_BF16 = "amp-bf16"  # autocast; the weights stay fp32
    FP32 = "fp32"


class TrainingOutcome(StrEnum):
    OK = "ok"
    DIVERGED = "diverged"  # a loss was not finite
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"


class DataIdentity(Part):
    """Identifies the data: runs on different data are not compared."""

    name: str
    size_bytes: Bytes
    # "sha256:..." of everything, or "sampled-sha256:..." of the size and some pieces
    hash: str


class Protocol(Part):
    name: str
    batch_size: FromOne | None  # None: the largest that fits, for every model its own
    seq_len: FromOne
    steps: FromOne | None  # either steps or seconds is given
    seconds: AboveZero | None
    optimizer: OptimizerName
    lr: AboveZero
    weight_decay: ZeroOrMore
    precision: Precision
    clip: ZeroOrMore  # the largest norm of the gradients; 0 clips nothing
    seed: Seed  # used where a trial has none of its own
    last_steps: FromOne  # the metric is the mean loss of these
    respect_documents: bool  # windows stay within one document; 0x1e delimits them

    @property
    def metric(self) -> str:
        return f"Last{self.last_steps}"

    @property
    def hash(self) -> str:
        values = {**asdict(self), "format": FORMAT}
        del values["name"]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class BenchTrial(Record, kind="bench trial"):
    model: str  # a name of the zoo, or file.py:function
    knobs: dict[str, str]
    model_hash: str | None  # the hash of the user's file; None for a model of the zoo
    protocol: Protocol
    protocol_hash: str
    seed: Count
    data: DataIdentity
    device: Device
    batch_size: Count
    source: str = "bench trial"

    @property
    def label(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.knobs.items())])

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.protocol.seq_len


class TrainedRun(Record, kind="trained model"):
    """A trial and its steps. A loss that is not finite is None, because JSON has no such number."""

    trial: BenchTrial
    outcome: TrainingOutcome
    environment: dict[str, Any]
    parameters: Count | None = None
    losses: list[Number | None] = field(default_factory=list)
    step_seconds: list[AboveZero] = field(default_factory=list)
    step_memory_bytes: list[Bytes] = field(default_factory=list)
    memory_kind: str = ""  # a description
    data_wait_seconds: Seconds = 0.0
    resumed_at_steps: list[int] = field(default_factory=list)
    error: str | None = None
    source: str = "trained"

    @property
    def finished(self) -> bool:
        """Whether it need not run again when the same bench is started again."""
        return self.outcome in (TrainingOutcome.OK, TrainingOutcome.DIVERGED)

    @property
    def last_losses(self) -> list[float]:
        return last_losses(self.losses, self.trial.protocol)

    @property
    def last_loss(self) -> float:
        """The protocol's metric, such as Last100 for standard-1."""
        return mean_loss(self.last_losses)

    @property
    def tokens_per_second(self) -> float | None:
        """The throughput of the median step: the first steps compile kernels and fill caches."""
        if not self.step_seconds:
            return None
        return self.trial.tokens_per_step / statistics.median(self.step_seconds)

    @property
    def peak_memory_bytes(self) -> int | None:
        return max(self.step_memory_bytes, default=None)

    @property
    def training_seconds(self) -> float:
        return sum(self.step_seconds)

    @property
    def data_wait_fraction(self) -> float:
        return self.data_wait_seconds / self.training_seconds if self.training_seconds else 0.0

    @property
    def tokens(self) -> int:
        return len(self.losses) * self.trial.tokens_per_step

    def summary(self) -> dict[str, Any]:
        """The values for --json, without the steps."""
        names = "outcome parameters tokens tokens_per_second peak_memory_bytes memory_kind"
        names += " training_seconds data_wait_fraction error"
        trial, last_loss = self.trial, self.last_loss
        return {
            "model": trial.label,
            "seed": trial.seed,
            "metric": trial.protocol.metric,
            "last_loss": last_loss if math.isfinite(last_loss) else None,
            "steps": len(self.losses),
            "batch_size": trial.batch_size,
            **{name: getattr(self, name) for name in names.split()},
        }

    def check(self) -> None:
        counts = {len(self.losses), len(self.step_seconds), len(self.step_memory_bytes)}
        require(len(counts) == 1, "losses, step_seconds and step_memory_bytes differ in length")
        if self.outcome == TrainingOutcome.OK:
            is_complete = bool(self.losses) and None not in self.losses
            require(is_complete, "losses are missing, though the outcome is ok")


def last_losses(losses: list[float | None], protocol: Protocol) -> list[float]:
    return [math.nan if loss is None else loss for loss in losses[-protocol.last_steps :]]


def mean_loss(losses: list[float]) -> float:
    return statistics.fmean(losses) if losses else math.nan


def by_model(runs: Sequence[TrainedRun]) -> list[list[TrainedRun]]:
    """The seeds of every model, in the order in which the models first appear."""
    groups: dict[str, list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault(run.trial.label, []).append(run)
    return list(groups.values())


def tokens_note(runs: Sequence[TrainedRun]) -> str | None:
    tokens = {run.tokens for run in runs}
    if len(tokens) < 2:
        return None
    span = f"{min(tokens):,} to {max(tokens):,}"
    return f"the runs saw different numbers of tokens, {span}: less loss may be more data"


class ModelResult(Part):
    """One model over all its seeds."""

    model: str
    parameters: Count | None
    seeds: list[int]
    last_losses: list[Number]  # one for each seed
    mean_last_loss: Number
    spread: Number | None  # the standard deviation over seeds; None with one seed
    # the noise of one run's metric, estimated from that run; None with several seeds
    noise: Number | None
    tokens: Count
    tokens_per_second: Number | None
    peak_memory_bytes: Bytes | None
    training_seconds: Seconds


class Difference(Part):
    """Another model minus the best one."""

    model: str
    difference: Number
    standard_error: Number
    interval: tuple[Number, Number]  # of 95 % confidence
    p_value: Number  # corrected for several tests
    distinguishable: bool
    how: str


class Comparison(Record, kind="comparison"):
    """Models from best to worst, and each compared with the best."""

    metric: str
    protocol: str
    protocol_hash: str
    data: str
    environment: dict[str, Any]
    models: list[ModelResult]
    differences: list[Difference]
    notes: list[str] = field(default_factory=list)
    source: str = "compared"

    @property
    def decided(self) -> bool:
        return self.differences[0].distinguishable

    def check(self) -> None:
        is_complete = len(self.differences) == len(self.models) - 1 > 0
        require(is_complete, "models and differences do not match: one for each model but the best")
        is_sound = all(each.interval[0] <= each.interval[1] for each in self.differences)
        require(is_sound, "differences: the ends of an interval are out of order")
