"""The results of a tune."""

from dataclasses import field
from enum import StrEnum
from typing import Any

from vramcast.records.base import (
    AboveZero,
    Bytes,
    Count,
    Knobs,
    Number,
    Part,
    Positive,
    Record,
    Seconds,
    SignedBytes,
    require,
)
from vramcast.records.machine import Machine


class TuneVerdict(StrEnum):
    APPLIED = "applied"
    REJECTED = "rejected"
    FAILED = "failed"
    NOT_TRIED = "not tried"
    NOT_APPLICABLE = "not applicable"


class Reason(StrEnum):
    """A reason for programs; the sentence beside it is for people."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_GAIN = "no gain"
    TOO_LITTLE_GAIN = "too little gain"
    NOISE = "noise"
    TOO_FEW_RUNS = "too few runs"
    OTHER_LOSSES = "other losses"
    LOSSES_NOT_FINITE = "losses not finite"
    NO_LOSSES = "no losses"
    OUT_OF_MEMORY = "out of memory"
    PREDICTED_OUT_OF_MEMORY = "predicted out of memory"
    TOO_MUCH_MEMORY = "too much memory"
    CHANGES_TRAINING = "changes training"
    REPLACED = "replaced"  # by another candidate that sets the same thing
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    UNSUPPORTED = "unsupported"
    KNOBS_REFUSED = "knobs refused"
    BUDGET_SPENT = "budget spent"
    MACHINE_LACKS_IT = "machine lacks it"
    NO_KNOB = "no knob"
    ALREADY_SET = "already set"
    OTHER_METHOD = "other method"  # it would replace the baseline's method, not make it faster
    NO_SIZE = "no size worth trying"


# The candidate computes something else than the baseline.
LOSS_REASONS = (Reason.OTHER_LOSSES, Reason.LOSSES_NOT_FINITE, Reason.NO_LOSSES)


class Speedup(Part):
    """How many times as fast it is: by step time, or by throughput if the steps differ in size."""

    ratio: AboveZero
    # The 95 % confidence interval; None with too few runs.
    low: Number | None = None
    high: Number | None = None
    p_value: Number | None = None
    by: str = "step time"  # or "tokens a second", "samples a second"

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.ratio:.3f}x"
        return f"{self.ratio:.3f}x ({self.low:.3f} to {self.high:.3f})"


class Judgement(Part):
    verdict: TuneVerdict
    reason: str
    reason_code: Reason | None = None  # None in older records
    likely_cause: str = ""


class TrialResult(Judgement):
    """A candidate compared with a configuration without it."""

    speedup: Speedup | None = None
    # The largest difference at any step, relative to the baseline's loss.
    loss_difference: Number | None = None
    memory_before_bytes: Bytes | None = None
    memory_after_bytes: Bytes | None = None
    missing_bytes: SignedBytes | None = None
    # predicted before it was tried; None if it was not predicted
    predicted_memory_bytes: Bytes | None = None
    num_runs: list[int] = field(default_factory=list)  # without the candidate, with it

    @property
    def is_gain(self) -> bool:
        return self.verdict == TuneVerdict.APPLIED


class MeasuredConfiguration(Part):
    """The configuration at the start or the end of a tune, as measured."""

    configuration: dict[str, Any]
    step_seconds: Seconds  # the median of its runs' medians
    work_per_step: Number
    unit: str  # tokens, samples or steps
    per_second: Number
    memory_bytes: Bytes | None  # reserved memory; on the CPU allocated memory
    first_loss: Number | None
    last_loss: Number | None
    num_runs: Count


class CandidateResult(Judgement):
    name: str
    what: str
    change: str
    caution: str
    loss_tolerance: Number | None
    alone: TrialResult | None
    on_top: TrialResult | None

    @property
    def trials(self) -> list[TrialResult]:
        return [trial for trial in (self.alone, self.on_top) if trial]


class PredictedGain(Part):
    """What other hardware, or shorter sequences, would bring."""

    what: str
    step_seconds: Seconds | None = None
    # relative to the prediction for this GPU
    speedup: Number | None = None
    memory_bytes: Bytes | None = None
    fits: bool | None = None
    reason: str = ""


class TuneResult(Record, kind="tune result"):
    workload: str
    knobs: Knobs  # the baseline's, defaults included
    device: str
    gpu: str | None
    memory_bytes: Bytes | None  # the allocator's limit
    num_parameters: Count | None
    torch_version: str
    cuda_version: str | None
    driver_version: str | None
    machine: Machine
    before: MeasuredConfiguration
    after: MeasuredConfiguration
    total: Speedup
    product_of_alone: Number | None  # the product of the candidates' gains alone
    loss_difference: float | None  # None if the step sizes differ
    target_steps: Positive
    seconds_before: Seconds
    seconds_after: Seconds  # for as many tokens or samples
    rows: list[CandidateResult]
    configuration: dict[str, Any]
    python_lines: list[str]  # for a launch line, the line itself is the first
    line: list[str] = field(default_factory=list)  # the words of a program's line
    # Candidates in the order they were applied; `step_order` also has those that were replaced
    # later.
    applied_order: list[str] = field(default_factory=list)
    step_order: list[str] = field(default_factory=list)
    prospects: list[PredictedGain] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    budget_seconds: Seconds | None = None
    seconds: Seconds = 0.0
    num_earlier_runs: Count = 0
    least_gain: Number = 0.02
    significance_level: Number = 0.01
    command: str = ""
    time_utc: str = ""
    source: str = "tuned"

    def rows_with(self, verdict: TuneVerdict) -> list[CandidateResult]:
        """The rows with this verdict. Applied ones are in the order in which they were applied."""
        order = {name: index for index, name in enumerate(self.applied_order)}
        rows = [row for row in self.rows if row.verdict == verdict]
        return sorted(rows, key=lambda row: order.get(row.name, len(order)))

    def check(self) -> None:
        trials = [trial for row in self.rows for trial in row.trials]
        is_paired = all(len(trial.num_runs) in (0, 2) for trial in trials)
        require(is_paired, "rows: num_runs are not those without and with the candidate")
