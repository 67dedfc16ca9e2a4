"""How long atomic additions take on a GPU, by their number, the number of places, and who shares
a place: kernels that torch.compile writes for gradients of tables add so.

    python benchmarks/step_time/recording/atomics.py OUT.jsonl

Lines of atomics.jsonl with the cases `hot`, `t5` and `embedding` were recorded once, beside these:
a share of the additions to few places, and what Inductor wrote for tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

NUMBERS = (1 << 18, 1 << 20, 3 << 20, 1 << 24)
PLACES = (1, 2, 8, 24, 96, 384, 1536, 12288, 98304, 786432)
BLOCK, ROUNDS = 512, 5


@triton.jit
def add_into(index, out, n, block: tl.constexpr):  # noqa: ANN001, ANN201
    i = tl.program_id(0) * block + tl.arange(0, block)
    mask = i < n
    tl.atomic_add(out + tl.load(index + i, mask), 1.0, mask, sem="relaxed")


def patterns(n: int, k: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Which of k places each of n additions goes to."""
    i = torch.arange(n, device="cuda")
    yield "cyclic", i % k
    yield "random", torch.randint(0, k, (n,), device="cuda")
    yield "runs of 4", (i // 4) % k
    yield "runs of 32", (i // 32) % k
    yield "blocks", (i * k) // n
    yield "apart", torch.randint(0, k, (n,), device="cuda") * 8  # no two share 32 bytes


def seconds_of(index: torch.Tensor, out: torch.Tensor) -> float:
    found = []
    for _ in range(1 + ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        add_into[(triton.cdiv(len(index), BLOCK),)](index, out, len(index), BLOCK)
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return sorted(found[1:])[ROUNDS // 2]


def main() -> None:
    with open(sys.argv[1], "w") as file:
        for n, k in ((n, k) for n in NUMBERS for k in PLACES if k <= n):
            for name, index in patterns(n, k):
                out = torch.zeros(8 * k + 8, device="cuda")
                line: dict[str, Any] = {"case": "triton", "n": n, "k": k, "pattern": name}
                line["seconds"] = seconds_of(index, out)
                print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main()
