"""A plan as data: for every GPU and sequence length a stage, and what the stages add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vramcast.forecast.laws import MemoryFit
from vramcast.records import VERSION, JsonRecord, LargeTensor


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One sequence length on one GPU. What is not predicted, or does not exist because nothing fits, is None."""

    seq_len: int
    fits: bool
    batch_size: int | None  # of one forward and backward pass
    accumulation_steps: int | None  # passes in one optimizer step
    tokens_per_batch: int | None
    tokens_per_step: int | None
    largest_batch: int | None
    first_failing_batch: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    share_of_memory: float | None  # reserved, of all the memory the allocator may take
    binds: str | None  # memory, compute, bandwidth or launch
    step_seconds: float | None  # of one optimizer step, all its passes
    tokens_per_second: float | None
    samples_per_second: float | None
    hours_to_budget: float | None  # if the whole token budget were trained at this length
    why: str
    start_step: int | None = None
    steps: int | None = None
    tokens: int | None = None
    hours: float | None = None  # of this stage
    missing_bytes: int | None = None
    largest_tensors: list[LargeTensor] = field(
        default_factory=list
    )  # where not even one sample fits


@dataclass(frozen=True, kw_only=True)
class GpuPlan:
    gpu: str | None  # None: only its memory was given
    capacity_bytes: int  # what the allocator may take
    limit_bytes: int  # what the plan may take of it
    stages: list[Stage]
    total_steps: int | None  # None where a stage does not fit: there is no curriculum then
    total_tokens: int | None
    total_hours: float | None
    limits: list[str] = field(default_factory=list)
    law: MemoryFit | None = (
        None  # of reserved memory, over every size that was simulated; None where those are too few
    )

    @property
    def complete(self) -> bool:
        return all(stage.fits for stage in self.stages)


@dataclass(frozen=True, kw_only=True)
class DocumentRow:
    """One row of document 001's table beside what is predicted."""

    seq_len: int
    document_batch: int
    document_tokens: int
    document_tokens_per_second: float | None
    logits_bytes: int  # of the document's batch, in bf16, alone
    document_needs_bytes: int
    document_fits: bool
    batch_size: int | None  # the largest that fits
    chunked_batch_size: int | None  # the same with the loss in chunks
    tokens_per_second: float | None


@dataclass(frozen=True, kw_only=True)
class DocumentComparison:
    document: str
    gpu: str
    chunks: int
    rows: list[DocumentRow]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Plan(JsonRecord):
    """Everything `vramcast plan` knows. Nothing in it was measured."""

    workload: str
    knobs: dict[str, Any]
    seq_lens: list[int]
    tokens: int
    tokens_per_step: int | None
    safety: float
    split: str  # how the tokens are split over the stages, in words
    gpus: list[GpuPlan]
    step_seconds_reason: str
    allocator_settings: str
    document: DocumentComparison | None = None
    torch_version: str = ""
    seconds: float = 0.0
    source: str = "planned"
    version: int = VERSION

    @property
    def fits(self) -> bool:
        return all(gpu.complete for gpu in self.gpus)
