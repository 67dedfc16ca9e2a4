"""The batches that document 001 claims for an RTX 4090, beside what is predicted to fit.

    python benchmarks/document_001/table.py            all ten lengths, a few minutes
    python benchmarks/document_001/table.py 64 128     some of them

Its budget is weights and optimizer state ("leaves 22 GB free"). What grows with the batch,
activations and logits, is not in it.
"""

from __future__ import annotations

import sys

import vramcast
from vramcast.records.plan import GpuPlan, Stage
from vramcast.units import format_bytes

WORKLOAD = "yxanul-197m"
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
    8: 50_000,
    16: 48_000,
    32: 45_000,
    64: 42_000,
    128: 40_000,
    256: 38_000,
    512: 35_000,
    2048: 25_000,
}
VOCABULARY, BF16_BYTES = 200_005, 2
CHUNKS = 16
COLUMNS = (
    *("length", "its batch", "logits", "needs", "fits", "ours", f"in {CHUNKS} chunks"),
    *("its tok/s", "our tok/s"),
)


def logits_bytes(num_tokens: int) -> int:
    return num_tokens * VOCABULARY * BF16_BYTES


def needed_bytes(seq_len: int) -> int:
    """What the document's batch reserves, with enough memory."""
    curve = vramcast.predict_batch_sizes(WORKLOAD, [BATCHES[seq_len]], gpu=GPU, seq_len=seq_len)
    return curve.points[0].peak_reserved_bytes


def row(stage: Stage, chunked: Stage, plan: GpuPlan) -> list[str]:
    batch, claimed = BATCHES[stage.seq_len], TOKENS_PER_SECOND.get(stage.seq_len)
    needs = needed_bytes(stage.seq_len)
    return [
        str(stage.seq_len),
        str(batch),
        format_bytes(logits_bytes(batch * stage.seq_len)),
        format_bytes(needs),
        "yes" if needs <= plan.capacity_bytes else "no",
        str(stage.largest_batch or "none"),
        str(chunked.largest_batch or "none"),
        str(claimed or ""),
        f"{stage.tokens_per_second or 0:.0f}",
    ]


def main(seq_lens: list[int]) -> None:
    plain = vramcast.plan(WORKLOAD, seq_lens=seq_lens, gpu=GPU).gpus[0]
    chunked = vramcast.plan(WORKLOAD, seq_lens=seq_lens, gpu=GPU, loss_chunks=CHUNKS).gpus[0]
    pairs = zip(plain.stages, chunked.stages, strict=True)
    rows = [row(stage, in_chunks, plain) for stage, in_chunks in pairs]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for cells in (COLUMNS, *rows):
        print(" ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
    beyond = sum(cells[4] == "no" for cells in rows)
    print(f"{beyond} of {len(rows)} batches of the document cannot fit.")
    print(f"The allocator has {format_bytes(plain.capacity_bytes)}.")


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or list(BATCHES))
