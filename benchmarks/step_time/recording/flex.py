"""Records the kernels that torch.compile writes for FlexAttention, forward and backward.

    python benchmarks/step_time/recording/flex.py OUT.jsonl SECONDS

A line has the shapes, how many blocks of 128 x 128 scores are computed (of those, how many without
a look at the mask), and the nanoseconds of each kernel.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

NUM_RUNS = 5


class Shape(NamedTuple):
    batch: int
    heads: int
    key_heads: int
    length: int
    width: int
    mask: str  # "all", "causal", "window", "documents"
    score: str  # "none", "distance", "cap"
    dtype: str


def shapes() -> list[Shape]:
    """Lengths and heads that people use; in random order, so that any part of them is fair."""
    found = [
        Shape(batch, heads, heads // group, length, width, mask, score, dtype)
        for batch, heads, length in ((8, 12, 1024), (2, 16, 4096), (1, 32, 8192), (32, 8, 512))
        for width in (64, 128)
        for mask in ("causal", "window", "documents", "all")
        for score in ("none", "distance", "cap")
        for group in (1, 4)
        for dtype in ("bfloat16", "float32")
        if dtype == "bfloat16" or (score == "none" and group == 1 and length <= 4096)
    ]
    random.Random(7).shuffle(found)
    return found


def masks(length: int) -> dict[str, Callable[..., Any] | None]:
    document = torch.arange(length, device="cuda") // 1000
    return {
        "all": None,
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k < 512),
        "documents": lambda b, h, q, k: (q >= k) & (document[q] == document[k]),
    }


def scores(heads: int) -> dict[str, Callable[..., Any] | None]:
    slopes = torch.exp2(-torch.arange(heads, device="cuda") / 2)
    return {
        "none": None,
        "distance": lambda s, b, h, q, k: s - slopes[h] * (q - k),
        "cap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    }


def recorded(shape: Shape) -> dict[str, Any]:
    torch._dynamo.reset()
    of_heads = {"query": shape.heads, "key": shape.key_heads, "value": shape.key_heads}
    dtype = getattr(torch, shape.dtype)
    tensors = {
        name: torch.randn(
            *(shape.batch, heads, shape.length, shape.width),
            device="cuda",
            dtype=dtype,
            requires_grad=True,
        )
        for name, heads in of_heads.items()
    }
    seen = masks(shape.length)[shape.mask]
    block_mask = seen and create_block_mask(
        seen, None, None, shape.length, shape.length, device="cuda"
    )
    attend = torch.compile(flex_attention, dynamic=False)

    def step() -> None:
        attend(
            **tensors,
            score_mod=scores(shape.heads)[shape.score],
            block_mask=block_mask,
            enable_gqa=shape.heads != shape.key_heads,
        ).sum().backward()

    for _ in range(2):
        step()
    counts = {"blocks": -1, "full_blocks": -1}
    if block_mask:
        full = int(block_mask.full_kv_num_blocks.sum())
        counts = {"blocks": full + int(block_mask.kv_num_blocks.sum()), "full_blocks": full}
    return {**shape._asdict(), **counts, "kernels": _nanoseconds(step)}


def _nanoseconds(step: Callable[[], None]) -> dict[str, float]:
    """By kernel: the median of its runs."""
    if not torch.cuda.is_available():
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(NUM_RUNS):
            step()
        torch.cuda.synchronize()
    found = defaultdict[str, list[float]](list)
    for event in profile.events():
        if "flex" in event.name:
            found[event.name].append(1000 * event.time_range.elapsed_us())
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    out, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    for shape in shapes():
        if time.monotonic() > until:
            break
        try:
            line = recorded(shape)
        except Exception as error:  # the others are recorded all the same
            line = {**shape._asdict(), "error": str(error)[:200]}
        with out.open("a") as file:
            print(json.dumps(line), file=file)


if __name__ == "__main__":
    main()
