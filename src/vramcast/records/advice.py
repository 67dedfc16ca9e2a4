"""What `vramcast advise` found: changes that save memory, alone and together."""

from dataclasses import field

from vramcast.records.base import (
    Bytes,
    Count,
    Knobs,
    Number,
    Part,
    Record,
    Seconds,
    SignedBytes,
)


class AdvisedChange(Part):
    """One optimisation, or several at once."""

    names: list[str]
    what: list[str]  # a description of each
    how: list[str]  # knobs, options or lines of code
    training: list[str]  # what it does to the training
    # With what it was predicted:
    knobs: Knobs = field(default_factory=dict)
    switches: Knobs = field(default_factory=dict)
    allocator: str = ""
    line: list[str] = field(default_factory=list)  # all words of a launch line
    passes: Count = 1
    world_size: Count = 1
    fits: bool
    peak_reserved_bytes: Bytes
    saved_bytes: SignedBytes
    step_seconds: Seconds | None = None
    step_seconds_low: Seconds | None = None
    step_seconds_high: Seconds | None = None
    more_time_percent: Number | None = None
    # Not simulated, but the most that it can save, estimated from what is alive at the peak.
    is_estimate: bool = False
    changes_training: bool = False


class NotAdvised(Part):
    name: str
    reason: str


class Advice(Record, kind="advice"):
    workload: str
    knobs: Knobs
    gpu: str | None
    capacity_bytes: Bytes | None
    peak_reserved_bytes: Bytes
    fits: bool
    step_seconds: Seconds | None
    step_seconds_low: Seconds | None
    step_seconds_high: Seconds | None
    # Changes with which it fits, cheapest first; if it fits already, those that save most.
    suggestions: list[AdvisedChange]
    alone: list[AdvisedChange]  # every change that saves something, the largest saving first
    not_advised: list[NotAdvised] = field(default_factory=list)
    command: str = ""  # the command that gives the full advice
    is_brief: bool = False  # only some changes were tried
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds = 0.0
    source: str = "advised"
