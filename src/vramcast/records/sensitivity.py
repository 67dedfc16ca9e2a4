"""How the peak of a workload changes with its knobs."""

from vramcast.records.base import Bytes, Count, Knobs, Number, Part, Record, Seconds, SignedBytes


class KnobEffect(Part):
    """How much more a larger value of one knob takes."""

    knob: str
    value: Count
    other_value: Count
    error: str = ""  # why it was not predicted; the rest is None then
    more_reserved_bytes: SignedBytes | None = None
    more_allocated_bytes: SignedBytes | None = None
    more_seconds: Number | None = None
    fits: bool = False


class Sensitivity(Record, kind="sensitivity"):
    """How the peak changes with each whole-number knob, while all others stay the same."""

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
