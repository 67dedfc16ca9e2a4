"""What is trained by `vramcast bench`, under which protocol, and what came of it."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from vramcast.records.base import Bytes, Count, Number, Record, Seconds, require

FORMAT = 1  # of the protocol: what its hash covers beside the values
FINISHED = ("ok", "diverged")  # other outcomes are tried again when the same bench is started again
# the parts of an environment in which losses or times differ for reasons that are not the model's
DECISIVE = ("device", "gpu", "torch_version", "schedulefree_version")


@dataclass(frozen=True, kw_only=True)
class DataIdentity:
    """What is written into results: runs on different data are not compared."""

    name: str
    size_bytes: Bytes
    # "sha256:..." of everything, or "sampled-sha256:..." of the size and evenly spaced pieces
    hash: str


@dataclass(frozen=True, kw_only=True)
class Protocol:
    name: str
    batch_size: Count | None  # None: the largest that fits, for every model its own
    seq_len: Count
    steps: Count | None  # exactly one of steps and seconds is given
    seconds: Seconds | None
    optimizer: str
    lr: Number
    weight_decay: Number
    precision: (
        str  # "bf16": weights, gradients and optimizer state too; "amp-bf16": the weights stay fp32
    )
    clip: Number  # of the gradients' norm; 0 clips nothing
    seed: Count  # where a trial is given none of its own
    last_steps: Count  # the metric is the mean loss of these
    respect_documents: bool  # windows stay within one document, of those that 0x1e delimits

    @property
    def metric(self) -> str:
        return f"Last{self.last_steps}"

    @property
    def hash(self) -> str:
        values = {**asdict(self), "format": FORMAT}
        del values["name"]
        return hashlib.sha256(
            json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Trial(Record):
    """One model under one protocol with one seed."""

    KIND: ClassVar[str] = "bench trial"

    model: str  # a name of the zoo, or file.py:function
    knobs: dict[str, str]
    model_hash: str | None  # of the user's file; None for a model of the zoo
    protocol: Protocol
    protocol_hash: str
    seed: Count
    data: DataIdentity
    device: str
    batch_size: Count
    source: str = "bench trial"

    @property
    def label(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.knobs.items())])

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.protocol.seq_len


@dataclass(frozen=True, kw_only=True)
class TrainedRun(Record):
    """A trial and its steps. A loss that was not finite is None: JSON has no word for it."""

    KIND: ClassVar[str] = "trained model"

    trial: Trial
    outcome: str  # ok, diverged, or how it failed: out_of_memory, crashed, unsupported
    environment: dict[str, Any]
    parameters: Count | None = None
    losses: list[float | None] = field(default_factory=list)
    step_seconds: list[Seconds] = field(default_factory=list)
    step_memory_bytes: list[int] = field(default_factory=list)
    memory_kind: str = ""  # whose memory that is, in words
    data_wait_seconds: Seconds = 0.0
    resumed_at_steps: list[int] = field(default_factory=list)
    error: str | None = None
    source: str = "trained"

    @property
    def finished(self) -> bool:
        return self.outcome in FINISHED

    @property
    def last_losses(self) -> list[float]:
        return finite_or_nan(self.losses[-self.trial.protocol.last_steps :])

    @property
    def last_loss(self) -> float:
        """The metric of the protocol, Last100 for standard-1."""
        return last_mean(self.losses, self.trial.protocol)

    @property
    def tokens_per_second(self) -> float | None:
        """Of the median step: the first ones compile kernels and fill caches."""
        median = statistics.median(self.step_seconds) if self.step_seconds else 0.0
        return self.trial.tokens_per_step / median if median else None

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
        """For --json: what a table shows, without the steps."""
        last = self.last_loss
        return {
            "model": self.trial.label,
            "seed": self.trial.seed,
            "outcome": self.outcome,
            "metric": self.trial.protocol.metric,
            "last_loss": last if math.isfinite(last) else None,
            "parameters": self.parameters,
            "steps": len(self.losses),
            "batch_size": self.trial.batch_size,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "peak_memory_bytes": self.peak_memory_bytes,
            "memory_kind": self.memory_kind,
            "training_seconds": self.training_seconds,
            "data_wait_fraction": self.data_wait_fraction,
            "error": self.error,
        }

    def check(self) -> None:
        require(self.trial.protocol.last_steps > 0, "trial.protocol.last_steps is 0")


def finite_or_nan(losses: list[float | None]) -> list[float]:
    return [math.nan if loss is None else loss for loss in losses]


def last_mean(losses: list[float | None], protocol: Protocol) -> float:
    last = finite_or_nan(losses[-protocol.last_steps :])
    return statistics.fmean(last) if last else math.nan


def tokens_note(runs: Sequence[TrainedRun]) -> str | None:
    """A warning where the runs cannot be told apart from the data they saw, as in document 002's own study of dimensions."""
    tokens = {run.tokens for run in runs}
    if len(tokens) < 2:
        return None
    return f"the runs saw different numbers of tokens, {min(tokens):,} to {max(tokens):,}: less loss may be more data"
