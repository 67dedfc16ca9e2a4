"""What differs between two predictions or measurements."""

from dataclasses import field

from vramcast.records.base import Bytes, Knobs, Number, Part, Record, Seconds


class RunSide(Part):
    """One of the two runs."""

    name: str  # a file, or a workload
    workload: str
    source: str  # predicted or measured
    gpu: str | None
    torch_version: str
    # The event as a share of all events, and allocated bytes; empty if unknown.
    timeline: list[tuple[float, int]] = field(default_factory=list)
    step: list[tuple[float, int]] = field(default_factory=list)  # for the step with the peak


class ComparedNumber(Part):
    """A number of both runs; None where a run does not have it."""

    what: str
    a: Number | None
    b: Number | None


class RunDiff(Record, kind="difference of two runs"):
    a: RunSide
    b: RunSide
    knobs_a: Knobs  # those that differ
    knobs_b: Knobs
    totals_bytes: list[ComparedNumber]
    times_seconds: list[ComparedNumber]
    others: list[ComparedNumber]
    # Those that differ, largest difference first; only for predictions.
    categories_bytes: list[ComparedNumber] = field(default_factory=list)
    modules_bytes: list[ComparedNumber] = field(default_factory=list)
    tensors_bytes: list[ComparedNumber] = field(default_factory=list)
    seconds: Seconds = 0.0
    max_bytes: Bytes | None = None  # the largest peak reserved memory that --fail-above allows B
    over_max_bytes: Bytes | None = None  # by how much it is larger; 0 is within
    source: str = "compared"

    @property
    def same(self) -> bool:
        """Whether everything that both runs have is the same."""
        compared = (*self.totals_bytes, *self.times_seconds, *self.others, *self.categories_bytes)
        return not any(each.a != each.b for each in compared if None not in (each.a, each.b))
