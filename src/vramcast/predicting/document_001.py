"""Document 001 (VRAM optimization for Yxanul 197M): its tables as published, and each row beside what is predicted.

Its budget is weights and optimizer state ("leaves 22 GB free"); what grows with the batch, activations and logits, is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.records.plan import DocumentComparison, DocumentRow, GpuPlan, Stage
from vramcast.records.prediction import BatchSizePoint
from vramcast.units import format_bytes

WORKLOAD = "yxanul-197m"
TITLE = "001, VRAM optimization for Yxanul 197M"
GPU = "rtx-4090"
BATCHES = {
    8: 8192,
    16: 8192,
    32: 4096,
    64: 2048,
    128: 1024,
    256: 512,
    512: 256,
    768: 256,
    1536: 128,
    2048: 64,
}
TOKENS_PER_SECOND = {
    8: 50e3,
    16: 48e3,
    32: 45e3,
    64: 42e3,
    128: 40e3,
    256: 38e3,
    512: 35e3,
    2048: 25e3,
}
TIMES_LARGER = {"a100-80gb": 2, "h100-80gb": 2, "h200": 4}  # than the RTX 4090's batches
GPUS = (GPU, *TIMES_LARGER)
VOCABULARY, BF16_BYTES = 200_005, 2
CHUNKS_KNOB, CHUNKS = "loss_chunks", 16


def logits_bytes(tokens: int, vocabulary: int = VOCABULARY) -> int:
    return tokens * vocabulary * BF16_BYTES


def compare(
    plans: Sequence[GpuPlan],
    also: Mapping[int, BatchSizePoint],
    chunked: Mapping[int, int | None],
    knobs: Mapping[str, Any],
) -> DocumentComparison:
    """`also` is what the document's batches take, `chunked` what fits with the loss in chunks, both by length and on the document's GPU."""
    plan = next(plan for plan in plans if plan.gpu == GPU)
    vocabulary = knobs.get("vocabulary", VOCABULARY)
    rows = [
        _row(stage, also[stage.seq_len], chunked.get(stage.seq_len), plan, vocabulary)
        for stage in plan.stages
        if stage.seq_len in also
    ]
    return DocumentComparison(
        document=TITLE, gpu=GPU, chunks=CHUNKS, rows=rows, notes=_notes(plan, plans, rows)
    )


def _row(
    stage: Stage, point: BatchSizePoint, chunked: int | None, plan: GpuPlan, vocabulary: int
) -> DocumentRow:
    batch = BATCHES[stage.seq_len]
    return DocumentRow(
        seq_len=stage.seq_len,
        document_batch=batch,
        document_tokens=batch * stage.seq_len,
        document_tokens_per_second=TOKENS_PER_SECOND.get(stage.seq_len),
        logits_bytes=logits_bytes(batch * stage.seq_len, vocabulary),
        document_needs_bytes=point.peak_reserved_bytes,
        document_fits=point.peak_reserved_bytes <= plan.capacity_bytes,
        batch_size=stage.largest_batch,
        chunked_batch_size=chunked,
        tokens_per_second=stage.tokens_per_second,
    )


def _notes(plan: GpuPlan, plans: Sequence[GpuPlan], rows: Sequence[DocumentRow]) -> list[str]:
    notes = []
    beyond = [row for row in rows if not row.document_fits]
    if beyond:
        usual = sorted(beyond, key=lambda row: row.logits_bytes)[len(beyond) // 2]
        notes.append(
            f"{len(beyond)} of {len(rows)} batches of the document cannot fit. The logits alone of {usual.document_tokens:,} tokens are "
            f"{format_bytes(usual.logits_bytes)} ({usual.logits_bytes / 1e9:.1f} GB) in bf16, "
            f"and the allocator has {format_bytes(plan.capacity_bytes)}"
        )
    for other in plans:
        times = TIMES_LARGER.get(other.gpu or "")
        ratios = [
            times * BATCHES[s.seq_len] / s.largest_batch
            for s in other.stages
            if times and s.largest_batch and s.seq_len in BATCHES
        ]
        if ratios:
            apart = " to ".join(
                dict.fromkeys(f"{ratio:.1f}" for ratio in (min(ratios), max(ratios)))
            )
            notes.append(
                f"{other.gpu}: the document says {times} x those batches, which is {apart} times what fits"
            )
    return notes
