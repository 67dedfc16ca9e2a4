"""Times products whose rows are not whole multiples of 16 bytes, and what it takes to pad them.

    python benchmarks/step_time/recording/unaligned.py OUT.jsonl

Inductor pads such a product where that is faster, and it is timed there: a language model's output
layer with 30,522 or 50,257 words, forward and both of its gradients. Needs a GPU; takes seconds.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

VOCABULARIES = (10001, 30522, 32001, 32004, 50257, 50258, 50260, 50264)
TOKENS, WIDTHS = (2048, 8192), (512, 768, 1024)
REPEATS = 20


def seconds(call: Callable[[], Any]) -> float:
    """The median, with a cold L2 cache as Inductor times it."""
    buffer = torch.empty(64 << 18, dtype=torch.int, device="cuda")
    for _ in range(3):
        call()
    found = []
    for _ in range(REPEATS):
        buffer.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return sorted(found)[REPEATS // 2]


def operands(kind: str, tokens: int, width: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As Inductor sees them: the weight and the gradient of the output are contiguous."""
    hidden = torch.randn(tokens, width, dtype=torch.bfloat16, device="cuda")
    weight = torch.randn(words, width, dtype=torch.bfloat16, device="cuda")
    gradient = torch.randn(tokens, words, dtype=torch.bfloat16, device="cuda")
    return {
        "forward": (hidden, weight.t()),
        "of_hidden": (gradient, weight),
        "of_weight": (gradient.t(), hidden),
    }[kind]


def padded(tensor: torch.Tensor) -> torch.Tensor:
    rows, columns = (-size % 8 for size in tensor.shape)
    return functional.pad(tensor, (0, columns, 0, rows))


def measure(kind: str, tokens: int, width: int, words: int) -> dict[str, Any]:
    a, b = operands(kind, tokens, width, words)
    a_padded, b_padded = padded(a), padded(b)
    return {
        "kind": kind,
        "tokens": tokens,
        "width": width,
        "words": words,
        "product_seconds": seconds(lambda: torch.mm(a, b)),
        "padded_product_seconds": seconds(lambda: torch.mm(a_padded, b_padded)),
        "pad_first_seconds": seconds(lambda: padded(a)),
        "pad_second_seconds": seconds(lambda: padded(b)),
    }


def main() -> None:
    with Path(sys.argv[1]).open("w") as file:
        for words in VOCABULARIES:
            for tokens in TOKENS:
                for width in WIDTHS:
                    for kind in ("forward", "of_hidden", "of_weight"):
                        row = measure(kind, tokens, width, words)
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
