"""What was predicted and what was measured: frozen, versioned, JSON both ways. Plain data; reading a record runs no code from it.

A Prediction and a Measurement are different types on purpose: nothing can show a guess as a fact.

Versions
    1   the first
"""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from vramcast.errors import UsageError

VERSION = 1
LARGEST_NUMBER = (
    1e100  # nothing measured comes near it; sums of what does would overflow, and NaN is no number
)
MAY_BE_BROKEN = ("losses",)  # of a run that diverged they are whatever they are
CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "workspaces",
    "temporaries",
    "cached_unused",
)

# how a real run can end; "unfinished" is what a record says until the run has ended, and for ever when it was interrupted
OUTCOMES = ("ok", "out_of_memory", "timeout", "crashed", "unsupported", "paging", "unfinished")
NOT_FINITE = ("nan", "inf", "-inf")

Record = TypeVar("Record", bound="JsonRecord")


@dataclass(frozen=True, kw_only=True)
class JsonRecord:
    """A record that can be written as JSON and read back strictly."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls: type[Record], text: str) -> Record:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise UsageError(
                f"This is not a vramcast record: {problem}.",
                "Give a file written by vramcast --json.",
            ) from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls: type[Record], data: Any) -> Record:
        if (
            not isinstance(data, dict)
            or type(data.get("version")) is not int
            or data["version"] != VERSION
        ):
            found = data.get("version") if isinstance(data, dict) else type(data).__name__
            raise UsageError(
                f"This record has version {found!r}; this vramcast reads version {VERSION}.",
                "Make it again.",
            )
        source = next(f.default for f in fields(cls) if f.name == "source")
        if data.get("source", source) != source:
            raise UsageError(
                f"This record was {data['source']}, not {source}.",
                f"Give a record of kind {cls.__name__}.",
            )
        record: Record = read_fields(cls, cls._decode(data), "This record")
        return record

    @classmethod
    def _decode(cls, data: dict[str, Any]) -> dict[str, Any]:
        """What JSON cannot say, back from how it was written."""
        return data


def read_fields(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    """Every field there and of its type. Names that are not fields are left out: a later version may write more."""
    hints = get_type_hints(kind)
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = sorted(name for name in needed if name not in data)
    if missing:
        raise UsageError(
            f"{where} lacks {', '.join(missing)}.", "It was cut short or edited: make it again."
        )
    known = [f.name for f in fields(kind) if f.name in data]
    return kind(**{name: _read(hints[name], data[name], name) for name in known})


def _read(kind: Any, value: Any, where: str) -> Any:
    """The value as its annotation has it: plain types, lists, dictionaries, unions and records, which is all there is in records."""
    if get_origin(kind) is UnionType:
        some = [k for k in get_args(kind) if k is not NoneType]  # at most one besides None
        return (
            None if value is None and NoneType in get_args(kind) else _read(some[0], value, where)
        )
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return read_fields(kind, value, where)
    if get_origin(kind) is list and isinstance(value, list):
        return [_read(get_args(kind)[0], item, where) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return {key: _read(get_args(kind)[1], item, where) for key, item in value.items()}
    allowed = (int, float) if kind is float else (kind,)
    if kind is Any or (
        type(value) in allowed
        and (_is_within(value) or (type(value) is float and where in MAY_BE_BROKEN))
    ):
        return value
    raise UsageError(
        f"This record has {str(value)[:60]!r} in {where}.",
        "It was edited or made by another program: make it again.",
    )


def _is_within(value: Any) -> bool:
    """Whether it is a number that can be computed with, or none at all: an integer of JSON may be larger than any float."""
    return not isinstance(value, int | float) or abs(value) <= LARGEST_NUMBER


@dataclass(frozen=True, kw_only=True)
class LargeTensor:
    """One of the largest tensors alive at the peak."""

    num_bytes: int
    category: str
    name: str
    shape: list[int]
    dtype: str
    operator: str
    module: str
    source: str


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Memory through one step, event by event, thinned to some hundred points; the peak is among them as it is."""

    phase: str  # "step 2", or "build"
    num_events: int  # of the whole step
    columns: list[
        str
    ]  # of a point: "event" counted in the step, "allocated", where known "reserved", then categories
    points: list[list[int]]
    peak_point: int  # where most is allocated
    tensors: list[LargeTensor]
    changes: list[
        list[int]
    ]  # of every point: the tensor's index and 1 where it was allocated, 0 where freed; [] where nothing was


@dataclass(frozen=True, kw_only=True)
class AliveGroup:
    """Tensors of one category and module that are alive at the peak."""

    category: str
    module: str  # as far down as the record has room for; "" where it is not known
    num_bytes: int
    num_tensors: int


@dataclass(frozen=True, kw_only=True)
class StepForecast:
    """The predicted time of one training step, once warm."""

    seconds: float
    device_seconds: float  # the GPU's work
    host_seconds: float  # Python's and the launches'; the step takes the longer of the two
    flops: float
    moved_bytes: float
    achieved_fraction: float  # of the GPU's peak rate for the precision that does most of the work
    bound_by: str  # compute, bandwidth or launch


@dataclass(frozen=True, kw_only=True)
class Prediction(JsonRecord):
    """Everything `vramcast predict` knows. Sizes in bytes. Nothing in it was measured."""

    workload: str
    knobs: dict[str, Any]
    gpu: str | None
    capacity_bytes: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    process_bytes: int | None
    first_step_allocated_bytes: int
    first_step_reserved_bytes: int
    fits: bool
    headroom_bytes: int | None
    num_alloc_retries: int
    failed_allocation_bytes: int | None
    num_parameters: int
    breakdown_bytes: dict[str, int]
    largest_tensors: list[LargeTensor]
    timeline: list[list[int]]
    peak_phase: str
    step_seconds: float | None
    step_seconds_reason: str
    tokens_per_second: float | None
    limits: list[str]
    allocator_settings: str
    torch_version: str
    seconds: float
    uncalibrated_kernels: list[str] = field(
        default_factory=list
    )  # whose memory is an estimate; `vramcast calibrate` measures them
    step: StepForecast | None = None  # None where `step_seconds` is, for the same reason
    step_memory: StepMemory | None = (
        None  # of the step with the peak; None in records of earlier versions
    )
    alive_at_peak: list[AliveGroup] = field(default_factory=list)
    source: str = "predicted"
    version: int = VERSION


@dataclass(frozen=True, kw_only=True)
class BatchSizePoint:
    """One batch size of a curve: replayed from a trace that was simulated, or interpolated between simulated ones."""

    batch_size: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    fits: bool
    num_alloc_retries: int
    simulated: bool
    step_seconds: float | None = None  # only of sizes that were simulated
    bound_by: str = ""  # compute, bandwidth or launch; "" where the time is not predicted


@dataclass(frozen=True, kw_only=True)
class BatchSizeCurve:
    """Predicted memory by batch size. Nothing in it was measured."""

    workload: str
    gpu: str | None
    capacity_bytes: int | None
    points: list[BatchSizePoint]
    limits: list[str] = field(default_factory=list)
    torch_version: str = ""
    seconds: float = 0.0
    source: str = "predicted"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BatchSizeCurve:
        curve: BatchSizeCurve = read_fields(cls, data, "This curve over batch sizes")
        return curve


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peaks of one phase of a run."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Of the measured steps; the warm-up is not in them."""

    seconds: list[float]
    median_seconds: float
    p95_seconds: float
    spread: float  # (largest - smallest) / median
    wall_seconds: float  # around all measured steps, the host's work between them included
    clock: str  # cuda_events or perf_counter


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a run was sound, by the stability contract: what failed, and what could not be judged and why."""

    stable: bool
    fail_reasons: list[str]
    not_judged: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Measurement(JsonRecord):
    """What one real run showed. Whatever was not measured is None; `notes` says why."""

    workload: str
    knobs: dict[str, Any]
    workload_id: str
    device: str  # cuda or cpu
    outcome: str
    verdict: Verdict
    warmup_steps: int
    measure_steps: int
    steps_done: int = 0  # measured ones
    signal: str | None = None
    error: str | None = None
    out_of_memory_on: str | None = None  # gpu or host
    gpu: str | None = None
    capacity_bytes: int | None = None  # of the card
    memory_cap_bytes: int | None = None
    num_parameters: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    build: Memory | None = None
    first_step: Memory | None = None
    cold: Memory | None = None  # building and warming up
    warm: Memory | None = None  # the measured steps
    process_bytes: int | None = (
        None  # peak reserved and what the process held outside the allocator
    )
    context_bytes: int | None = None
    loaded_kernels_bytes: int | None = None
    num_alloc_retries: int | None = None
    times: StepTimes | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    warmup_seconds: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)  # warm-up included
    build_seconds: float | None = None
    seconds: float = 0.0  # the whole probe, as the caller waited for it
    allocator_settings: str = ""
    switches: dict[str, Any] = field(
        default_factory=dict
    )  # torch's process-wide ones, as they were in force
    torch_version: str = ""
    cuda_version: str | None = None
    driver_version: str | None = None
    driver_model: str | None = None
    notes: list[str] = field(default_factory=list)
    source: str = "measured"
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        # JSON has no nan and no infinity, and they are what a broken run's losses are
        return {
            **asdict(self),
            "losses": [x if x is None or math.isfinite(x) else str(x) for x in self.losses],
        }

    @classmethod
    def _decode(cls, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("outcome", "ok") not in OUTCOMES:
            raise UsageError(
                f"This record has the outcome {data['outcome']!r}.",
                f"A run ends as one of {', '.join(OUTCOMES)}.",
            )
        losses = data.get("losses")
        read = (
            [float(x) if x in NOT_FINITE else x for x in losses]
            if isinstance(losses, list)
            else losses
        )
        return {**data, "losses": read} if "losses" in data else data
