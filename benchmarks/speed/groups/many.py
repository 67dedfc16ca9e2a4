"""The same question many times: batch sizes, settings and GPUs of GPT-124M, on all cores.

Ratios are of processor seconds: how many cores are free does not change them. 100 predictions in
10 s on two idle cores are 20 processor seconds, and `import torch` takes 1.07 of them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timing import IMPORT_TORCH, VRAMCAST, Row, in_turns, shown

TITLE = "Many"
GPT = ("predict", "examples/gpt.py:build")
SIZES = ",".join(map(str, range(1, 101)))
AT_MOST_100 = 20 / 1.07
MAX_REPEATS = 3


def rows(repeats: int) -> Iterator[Row]:
    def row(name: str, *words: str, at_most: float | None = None) -> Row:
        command: Sequence[str] = (*VRAMCAST, *GPT, *words)
        torch, timing = in_turns(min(repeats, MAX_REPEATS), IMPORT_TORCH, command)
        ratio = timing.processor_seconds / torch.processor_seconds
        text = shown(command).replace(SIZES, "1,2,...,100")
        return Row(name, text, timing, "import torch, processor seconds", ratio, at_most)

    yield row("64 batch sizes, interpolated", "--gpu", "h200", "--batch-sizes", "1-64")
    yield row("every GPU", "--gpu", "all")
    yield row(
        "100 predictions", "--gpu", "h200", "--vary", f"batch_size={SIZES}", at_most=AT_MOST_100
    )
