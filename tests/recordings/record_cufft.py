"""Records the work areas of cuFFT on this machine's GPU.

python tests/recordings/record_cufft.py OUT.jsonl.gz [SECONDS]

A line for each transform: [kind, sizes, batch, type, bytes], the bytes that torch takes beside the
result and the copy of the input, which transforms to real numbers overwrite.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Iterator

import torch

COMPLEX = {
    "float32": torch.complex64,
    "float64": torch.complex128,
    "float16": torch.complex32,
}
KINDS = ("r2c", "c2r", "c2c")
LONG = [3000, 3136, 4000, 5000, 6000, 8000, 10000, 12288, 16000, 20000, 24000, 32000, 44100, 48000]
PLANES = [(n, n) for n in (8, 14, 16, 28, 32, 56, 64, 85, 96, 128, 224, 256, 421, 512, 1024)]
SOLIDS = [(n, n, n) for n in (8, 16, 24, 32, 64, 128)]
Case = tuple[str, tuple[int, ...], int, str]


def is_smooth(number: int) -> bool:
    for factor in (2, 3, 5, 7):
        while number % factor == 0:
            number //= factor
    return number == 1


def cases() -> Iterator[Case]:
    smooth = [n for n in range(2, 3000) if is_smooth(n)]
    for sizes in [*((n,) for n in smooth + LONG), *((1 << k,) for k in range(12, 21))]:
        yield from ((kind, sizes, 64, "float32") for kind in KINDS)
    for sizes in PLANES + SOLIDS:
        yield from ((kind, sizes, batch, "float32") for kind in KINDS for batch in (1, 4, 32))
    for n in (96, 1024, 1568, 1536, 4096, 8192, 32768):
        yield from ((kind, (n,), batch, "float32") for kind in KINDS for batch in (1, 7, 256, 1000))
        yield from ((kind, (n,), 64, "float64") for kind in KINDS)
    for n in (n for n in range(3, 1300) if not is_smooth(n)):
        yield from ((kind, (n,), 16, "float32") for kind in KINDS)


def requested_bytes() -> int:
    return int(torch.cuda.memory_stats()["requested_bytes.all.allocated"])


def work_area_bytes(kind: str, sizes: tuple[int, ...], batch: int, name: str) -> int:
    dims = list(range(1, 1 + len(sizes)))
    given = (*sizes[:-1], sizes[-1] // 2 + 1) if kind == "c2r" else sizes
    dtype = getattr(torch, name) if kind == "r2c" else COMPLEX[name]
    x = torch.zeros(batch, *given, device="cuda", dtype=dtype)
    before = requested_bytes()
    if kind == "r2c":
        y = torch._fft_r2c(x, dims, 0, True)
    elif kind == "c2r":
        y = torch._fft_c2r(x, dims, 0, sizes[-1])
    else:
        y = torch._fft_c2c(x, dims, 0, True)
    return requested_bytes() - before - y.nbytes - (x.nbytes if kind == "c2r" else 0)


if __name__ == "__main__":
    end = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 120)
    torch.zeros(1, device="cuda")
    with gzip.open(sys.argv[1], "wt") as file:
        for case in cases():
            if time.monotonic() > end:
                break
            file.write(json.dumps([*case, work_area_bytes(*case)]) + "\n")
