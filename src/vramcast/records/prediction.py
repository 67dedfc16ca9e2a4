"""What was predicted: one step, memory over batch sizes, the largest batch.

A Prediction and a Measurement are different types on purpose: nothing can show a guess as a fact.
"""

from dataclasses import field
from enum import StrEnum

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
from vramcast.records.compiled import Compilation as Compilation
from vramcast.records.compiled import Recompilation as Recompilation
from vramcast.records.measurement import Outcome
from vramcast.records.phases import Phase as Phase
from vramcast.records.phases import PhaseBand as PhaseBand
from vramcast.records.phases import PhaseName as PhaseName
from vramcast.records.phases import StepBand as StepBand
from vramcast.records.step_memory import AliveGroup as AliveGroup
from vramcast.records.step_memory import AlivePlace as AlivePlace
from vramcast.records.step_memory import LargeTensor as LargeTensor
from vramcast.records.step_memory import SegmentMap as SegmentMap
from vramcast.records.step_memory import StepMemory as StepMemory

CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "workspaces",
    "temporaries",
    "private_pools",
    "cached_unused",
)


class BoundBy(StrEnum):
    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    LAUNCH = "launch"  # the GPU waits for the host
    NOT_PREDICTED = ""


class RankMemory(Part):
    """The memory of one of several GPUs."""

    rank: Count
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes
    fits: bool
    step_seconds: Seconds | None = None
    alike: list[int] = field(default_factory=list)  # other simulated ranks with the same numbers


class Collective(Part):
    """All collectives of one kind in one group of GPUs, in a step."""

    operation: str
    num_gpus: Count
    num_gpus_in_machine: Count
    count: Count
    sent_bytes: Number  # by this GPU
    seconds: Seconds


class Communication(Part):
    """Communication between GPUs in a step. It is predicted from data sheets and was not
    measured."""

    link: str  # inside a machine
    network: str  # between machines, for each GPU
    sent_bytes: Number  # by this GPU
    seconds: Seconds  # the sum over all collectives
    exposed_seconds: Seconds  # by how much they make the step longer; the rest runs beside kernels
    efficiency: Number  # the step's time without them, as a fraction of that with them
    collectives: list[Collective]


class StepForecast(Part):
    """The forecast of a training step, once warm."""

    seconds: Seconds
    # The range in which 90 % of measured medians lie; None in older records.
    seconds_low: Seconds | None = None
    seconds_high: Seconds | None = None
    device_seconds: Seconds  # the GPU's work
    host_seconds: Seconds  # Python and the launches
    flops: Number
    moved_bytes: Number
    achieved_fraction: Number  # the fraction reached of the GPU's peak rate for the main precision
    bound_by: BoundBy
    host: str = ""  # the machine on which the host's seconds were measured
    communication: Communication | None = None  # of several GPUs


class FailedAllocation(Part):
    """The first allocation that finds no room."""

    tensor: LargeTensor  # the tensor that was asked for
    phase: str  # "step 2", "build", "evaluate", ...
    during: str  # forward, backward or update; "" where it is not known
    free_bytes: Bytes  # memory that the allocator had not taken, after it emptied its cache
    fragmented_bytes: Bytes  # memory that it had taken, but free only in pieces that are too small
    alive_bytes: dict[str, Bytes]  # by category, largest first
    largest_alive: list[LargeTensor]
    settings_that_fit: list[str]  # settings of the allocator with which the whole run fits
    event: Count | None = None  # counted in the whole run; None in older records


class MemoryGrowth(Part):
    """The memory that every step leaves behind, from the second on."""

    bytes_per_step: Bytes
    num_tensors_per_step: Count
    tensors: list[LargeTensor]  # the largest tensors that one step leaves
    num_steps_that_fit: Count | None


class Prediction(Record, kind="prediction"):
    """Everything `vramcast predict` knows about one step."""

    workload: str
    knobs: Knobs
    gpu: str | None
    capacity_bytes: Bytes | None
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes
    process_bytes: Bytes | None
    first_step_allocated_bytes: Bytes
    first_step_reserved_bytes: Bytes
    fits: bool
    headroom_bytes: SignedBytes | None
    num_alloc_retries: Count
    failed_allocation_bytes: Bytes | None
    num_parameters: Count
    num_trainable_parameters: Count | None = None  # None in older records
    breakdown_bytes: dict[str, SignedBytes]
    largest_tensors: list[LargeTensor]
    timeline: list[tuple[int, int, int]]  # event, allocated bytes, reserved bytes
    peak_phase: str
    step_seconds: Seconds | None
    step_seconds_low: Seconds | None = None
    step_seconds_high: Seconds | None = None
    step_seconds_reason: str
    tokens_per_second: Number | None
    limits: list[str]
    allocator_settings: str
    torch_version: str
    seconds: Seconds
    # Kernels whose memory is an estimate; `vramcast calibrate` measures them.
    uncalibrated_kernels: list[str] = field(default_factory=list)
    step: StepForecast | None = None  # None where `step_seconds` is
    # For the step with the peak; None in older records.
    step_memory: StepMemory | None = None
    alive_at_peak: list[AliveGroup] = field(default_factory=list)
    alive_places: list[AlivePlace] = field(default_factory=list)  # largest first; some hundreds
    # They differ from the peak shown only where timing decides when memory can be used again.
    peak_reserved_bytes_low: Bytes | None = None
    peak_reserved_bytes_high: Bytes | None = None
    # In the order in which they first came; empty in older records.
    phases: list[Phase] = field(default_factory=list)
    phase_bands: list[PhaseBand] = field(default_factory=list)  # over the timeline
    step_bands: list[StepBand] = field(default_factory=list)  # within the bands of training
    # The simulated ones of several GPUs. The other fields are those of the GPU that needs most.
    world_size: Count = 1
    ranks: list[RankMemory] = field(default_factory=list)
    # For scaled_dot_product_attention: the order in which kernels are tried, and those used.
    attention_order: list[str] = field(default_factory=list)
    attention_kernels: list[str] = field(default_factory=list)
    # A part of process_bytes: measured for one GPU, else an estimate from NCCL's sources.
    communicators_bytes: Bytes = 0
    # Notes on a program's run: what was not seen, and what was not written.
    notes: list[str] = field(default_factory=list)
    failure: FailedAllocation | None = None  # only if it does not fit
    growth: MemoryGrowth | None = None  # only if steps leave memory behind
    segment_map: SegmentMap | None = None  # None in older records, and for very long runs
    max_bytes: Bytes | None = None  # the largest peak reserved memory that --max allows
    over_max_bytes: Bytes | None = None  # by how much it is larger; 0 is within
    compilation: Compilation | None = None  # only if torch.compile compiled something
    source: str = "predicted"

    def check(self) -> None:
        if self.step_memory is not None:
            self.step_memory.check()


class Attempt(Part):
    batch_size: Count
    source: str = "predicted"  # or measured
    outcome: Outcome | None = None  # None in older curves
    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None
    num_alloc_retries: Count | None
    step_seconds: Seconds | None = None  # predicted only where simulated
    step_seconds_low: Seconds | None = None  # only where predicted
    step_seconds_high: Seconds | None = None
    bound_by: BoundBy = BoundBy.NOT_PREDICTED
    simulated: bool = True  # else interpolated


class BatchSizePoint(Attempt):
    """A size that does not fit has the numbers that it would have with enough memory."""

    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes
    num_alloc_retries: Count
    fits: bool


class BatchSizeCurve(Record, kind="curve over batch sizes", version_where_missing=1):
    workload: str
    gpu: str | None
    capacity_bytes: Bytes | None
    points: list[BatchSizePoint]
    limits: list[str] = field(default_factory=list)
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds = 0.0
    source: str = "predicted"

    @property
    def fits(self) -> bool:
        return any(point.fits for point in self.points)


class PredictedCase(Part):
    """One row of a table: a GPU and values of the knobs that vary."""

    gpu: str | None
    knobs: Knobs  # those that vary
    error: str = ""  # why there is no prediction; then the numbers are None
    capacity_bytes: Bytes | None = None
    fits: bool = False
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    process_bytes: Bytes | None = None
    headroom_bytes: SignedBytes | None = None
    num_alloc_retries: Count | None = None
    num_parameters: Count | None = None
    step_seconds: Seconds | None = None
    step_seconds_low: Seconds | None = None
    step_seconds_high: Seconds | None = None
    bound_by: BoundBy = BoundBy.NOT_PREDICTED
    tokens_per_second: Number | None = None
    # Differences of peak reserved and of the step's time to the first case that is predicted.
    more_bytes: SignedBytes | None = None
    more_percent: Number | None = None
    more_seconds: Number | None = None
    limits: list[str] = field(default_factory=list)
    batch_size: Count | None = None  # the knob, where there is one
    samples_per_second: Number | None = None
    # For the whole training, if its length was given; the cost if there is a price.
    hours: Number | None = None
    hours_low: Number | None = None
    hours_high: Number | None = None
    cost: Number | None = None
    cost_low: Number | None = None
    cost_high: Number | None = None


class PredictionTable(Record, kind="table of predictions"):
    """The answer of `vramcast predict` for several GPUs, or several values of knobs."""

    workload: str
    knobs: Knobs  # the same in all cases
    vary: dict[str, list[str]]  # the values as they were given
    gpus: list[str]
    cases: list[PredictedCase]
    allocator_settings: str = ""
    torch_version: str = ""
    seconds: Seconds = 0.0
    # The length of the training, and the price of an hour by GPU, if given.
    tokens: Count | None = None
    train_steps: Count | None = None
    prices: dict[str, Number] = field(default_factory=dict)
    source: str = "predicted"

    @property
    def fits(self) -> bool:
        return any(case.fits for case in self.cases)


class MemoryLaw(Part):
    intercept_bytes: SignedBytes
    bytes_per_sample: int
    largest_residual: Number  # over the sizes that it was fitted to
    smallest_batch: Count | None = None  # among those sizes; None in older records
    largest_batch: Count | None = None

    @property
    def reach(self) -> str:
        """How exact the law is, and for which sizes: at others it may be further off."""
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
    step_seconds_low: Seconds | None = None  # only where predicted
    step_seconds_high: Seconds | None = None
    samples_per_second: Number
    # Measured, predicted, or scaled: the predicted time times how much longer measured sizes took.
    source: str
    bound_by: str
    empties_cache: bool  # to fit; only measured times include the cost of that


class MaxBatch(Record, kind="largest batch"):
    """What `vramcast max-batch` found. Only sizes with a measured attempt were really run."""

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
    knee: Choice | None = None  # the smallest batch that comes near the most samples a second
    micro_batch: Count | None = None
    accumulation_steps: Count | None = None
    global_batch: Count | None = None
    notes: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    # only where not even the smallest batch fits
    largest_tensors: list[LargeTensor] = field(default_factory=list)
    missing_bytes: SignedBytes | None = None
    advice: list[str] = field(default_factory=list)
    torch_version: str = ""
    seconds: Seconds = 0.0
    source: str = "searched"
