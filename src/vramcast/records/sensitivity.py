"""How the peak of a workload moves with its knobs."""

from vramcast.records.base import Bytes, Count, Knobs, Number, Part, Record, Seconds, SignedBytes


class KnobEffect(Part):
    """What a larger value of one knob takes more."""

    knob: str
    value: Count
    other_value: Count
    error: str = ""  # why it was not predicted; then the rest is None
    more_reserved_bytes: SignedBytes | None = None
    more_allocated_bytes: SignedBytes | None = None
    more_seconds: Number | None = None
    fits: bool = False


class Sensitivity(Record, kind="sensitivity"):
    """How the peak moves with each whole-number knob, all others as they are."""

    workload: str
    knobs: Knobs
    gpu: str | None
    capacity_bytes: Bytes | None
    peak_reserved_bytes: Bytes
    peak_allocated_bytes: Bytes
    step_seconds: Seconds | None
    effects: list[KnobEffect]
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds = 0.0
    source: str = "predicted"

    @property
    def fits(self) -> bool:
        return self.capacity_bytes is None or self.peak_reserved_bytes <= self.capacity_bytes
