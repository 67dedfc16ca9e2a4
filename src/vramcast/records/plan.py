"""A plan: for every GPU and sequence length a stage, and what the stages add up to."""

from dataclasses import field

from vramcast.records.base import (
    Bytes,
    Count,
    Knobs,
    Number,
    Part,
    Positive,
    Record,
    Seconds,
    SignedBytes,
)
from vramcast.records.fit import MemoryFit
from vramcast.records.prediction import LargeTensor


class Stage(Part):
    seq_len: Positive
    fits: bool
    first_failing_batch: Count | None
    why: str
    batch_size: Count | None = None  # in one forward and backward pass
    accumulation_steps: Count | None = None
    tokens_per_batch: Count | None = None
    tokens_per_step: Count | None = None
    largest_batch: Count | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    # reserved memory as a share of what the allocator may take
    share_of_memory: Number | None = None
    binds: str | None = None  # memory, compute, bandwidth or launch
    step_seconds: Seconds | None = None  # for all passes of an optimizer step
    step_seconds_low: Seconds | None = None
    step_seconds_high: Seconds | None = None
    tokens_per_second: Number | None = None
    samples_per_second: Number | None = None
    hours_to_budget: Number | None = None  # for all tokens at this length
    start_step: Count | None = None
    steps: Count | None = None
    tokens: Count | None = None
    hours: Number | None = None
    missing_bytes: SignedBytes | None = None
    # only where not even one sample fits
    largest_tensors: list[LargeTensor] = field(default_factory=list)


class GpuPlan(Part):
    gpu: str | None  # None: only its memory was given
    capacity_bytes: Bytes  # what the allocator may take
    limit_bytes: Bytes  # the part of it that the plan may use
    stages: list[Stage]
    total_steps: Count | None  # None where a stage does not fit
    total_tokens: Count | None
    total_hours: Number | None
    total_hours_low: Number | None = None
    total_hours_high: Number | None = None
    cost: Number | None = None  # for all hours, if there is a price
    cost_low: Number | None = None
    cost_high: Number | None = None
    # Batches and memory are those of one GPU; tokens, hours and cost those of all together.
    world_size: Count = 1
    strategy: str = ""
    gpu_hours: Number | None = None
    # throughput per GPU, relative to the fewest GPUs on which it fits
    efficiency: Number | None = None
    error: str = ""  # why there are no stages
    limits: list[str] = field(default_factory=list)
    # A law of reserved memory; None where too few sizes were simulated.
    law: MemoryFit | None = None

    @property
    def name(self) -> str:
        """The name in its files, such as h200 or h200x8-fsdp2."""
        several = f"x{self.world_size}" if self.world_size > 1 else ""
        return f"{self.gpu or 'memory'}{several}{self.strategy and '-'}{self.strategy}"

    @property
    def complete(self) -> bool:
        return not self.error and all(stage.fits for stage in self.stages)


class Plan(Record, kind="plan"):
    """Everything `vramcast plan` knows. Nothing in it was measured."""

    workload: str
    knobs: Knobs
    seq_lens: list[int]
    # False: the workload has no knob seq_len, lengths are 1, and tokens are samples.
    has_lengths: bool = True
    tokens: Count
    tokens_per_step: Count | None
    safety: Number
    split: str  # how the tokens are divided among the stages, in words
    gpus: list[GpuPlan]
    step_seconds_reason: str
    allocator_settings: str
    torch_version: str = ""
    seconds: Seconds = 0.0
    prices: dict[str, Number] = field(default_factory=dict)  # the price of an hour, by GPU
    deadline_hours: Number | None = None
    source: str = "planned"

    @property
    def fits(self) -> bool:
        """Whether everything fits on at least one GPU, in time."""
        return bool(self.in_time)

    @property
    def in_time(self) -> list[GpuPlan]:
        complete = [gpu for gpu in self.gpus if gpu.complete]
        if self.deadline_hours is None:
            return complete
        timed = [(gpu.total_hours, gpu) for gpu in complete]
        return [gpu for hours, gpu in timed if hours is not None and hours <= self.deadline_hours]

    @property
    def fewest(self) -> GpuPlan | None:
        """The plan with the fewest GPUs on which it fits."""
        complete = [gpu for gpu in self.gpus if gpu.complete]
        return min(complete, key=lambda gpu: gpu.world_size, default=None)

    @property
    def cheapest(self) -> GpuPlan | None:
        """The cheapest plan that is done in time: by cost, or without prices by GPU-hours."""
        priced = [(gpu.cost if self.prices else gpu.gpu_hours, gpu) for gpu in self.in_time]
        known = [(value, gpu) for value, gpu in priced if value is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None

    def check(self) -> None:
        for gpu in self.gpus:
            if gpu.law is not None:
                gpu.law.check()
