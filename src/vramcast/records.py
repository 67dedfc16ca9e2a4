"""What was predicted: frozen, versioned, JSON both ways. Plain data; reading a record runs no code from it.

Versions
    1   the first
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from vramcast.errors import UsageError

VERSION = 1
CATEGORIES = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "workspaces", "temporaries", "cached_unused")


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
class Prediction:
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
    source: str = "predicted"
    version: int = VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Prediction:
        try:
            data = json.loads(text)
        except ValueError as problem:
            raise UsageError(f"This is not a vramcast record: {problem}.", "Give a file written by vramcast predict --json.") from None
        if not isinstance(data, dict) or data.get("version") != VERSION:
            found = data.get("version") if isinstance(data, dict) else type(data).__name__
            raise UsageError(f"This record has version {found!r}; this vramcast reads version {VERSION}.", "Make the prediction again.")
        known = {f.name for f in fields(cls)}
        missing = sorted(f.name for f in fields(cls) if f.name not in data and f.name not in ("source", "version"))
        if missing:
            raise UsageError(f"This record lacks {', '.join(missing)}.", "It was cut short or edited: make the prediction again.")
        try:
            data["largest_tensors"] = [LargeTensor(**t) for t in data["largest_tensors"]]
        except TypeError as problem:
            raise UsageError(f"This record has a malformed entry in largest_tensors: {problem}.", "Make the prediction again.") from None
        return cls(**{key: value for key, value in data.items() if key in known})


@dataclass(frozen=True, kw_only=True)
class BatchSizePoint:
    """One batch size of a curve: replayed from a trace that was simulated, or interpolated between simulated ones."""

    batch_size: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    fits: bool
    num_alloc_retries: int
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class BatchSizeCurve:
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
