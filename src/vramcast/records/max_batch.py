"""What a search for the largest batch found."""

from dataclasses import field

from vramcast.records.base import (
    Count,
    Knobs,
    Number,
    Part,
    Positive,
    Record,
    Seconds,
    SignedBytes,
)
from vramcast.records.prediction import Attempt, LargeTensor


class MemoryLaw(Part):
    intercept_bytes: SignedBytes
    bytes_per_sample: int
    largest_residual: Number  # of the sizes it was made from
    smallest_batch: Count | None = None  # of those sizes; None in records of earlier versions
    largest_batch: Count | None = None

    @property
    def reach(self) -> str:
        """How far off it is, and where that was seen: at other sizes it may be further off."""
        where = "the sizes it was made from"
        if self.smallest_batch is not None:
            where = f"batch {self.smallest_batch} to {self.largest_batch}"
        return f"off by at most {100 * self.largest_residual:.1f} % over {where}"


class Choice(Part):
    batch_size: Count
    reason: str


class Speed(Part):
    batch_size: Count
    step_seconds: Seconds
    samples_per_second: Number
    # Measured; predicted; scaled: predicted, times what measured sizes took longer than predicted.
    source: str
    bound_by: str
    empties_cache: bool  # to fit; only measured times have what that costs


class MaxBatch(Record, kind="largest batch"):
    """Only sizes with a measured attempt were really run."""

    workload: str
    knobs: Knobs
    gpu: str | None
    capacity_bytes: Positive
    largest_batch: Count | None
    first_failing_batch: Count | None
    confirmed: bool
    attempts: list[Attempt]
    allocated_law: MemoryLaw | None
    reserved_law: MemoryLaw | None
    maximum: Choice | None
    recommended: Choice | None
    conservative: Choice | None
    speeds: list[Speed] = field(default_factory=list)
    fastest: Choice | None = None  # the most samples a second
    knee: Choice | None = None  # the smallest that comes near the most
    micro_batch: Count | None = None
    accumulation_steps: Count | None = None
    global_batch: Count | None = None
    notes: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    # Where not even the smallest batch fits.
    largest_tensors: list[LargeTensor] = field(default_factory=list)
    missing_bytes: SignedBytes | None = None
    advice: list[str] = field(default_factory=list)
    torch_version: str = ""
    seconds: Seconds = 0.0
    source: str = "searched"
