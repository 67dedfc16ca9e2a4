"""Factorise matrices on a real GPU and write what each call allocates and frees.

    PYTHONPATH=src:tests/recordings python tests/recordings/record_cusolver.py OUT.jsonl.gz

Each line: {"name": ..., "shape": ..., "dtype": ..., "events": [+size, -size, ...]}.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator

import torch
from record_kernels import events_of

CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "cholesky": torch.linalg.cholesky,
    "inv": torch.linalg.inv,
    "lu_factor": torch.linalg.lu_factor,
    "solve": lambda a: torch.linalg.solve(a, a),
    "slogdet": torch.linalg.slogdet,
    "eigh": torch.linalg.eigh,
    "eigvalsh": torch.linalg.eigvalsh,
    "svd": lambda a: torch.linalg.svd(a, full_matrices=False),
    "svdvals": torch.linalg.svdvals,
    "qr": torch.linalg.qr,
}
OF_ANY_SHAPE = ("svd", "svdvals", "qr")
SIZES = (2, 3, 4, 8, 16, 24, 31, 32, 33, 48, 64, 96, 100, 128, 160, 200, 256, 300, 384, 512, 513)
LARGE = (640, 768, 1000, 1024, 1536, 2048)
BATCHES: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (3,), (8,), (32,), (256,))
OBLONG = ((64, 16), (256, 64), (1024, 256), (2048, 256), (512, 100), (1000, 10), (40, 30))


def cases() -> Iterator[tuple[str, tuple[int, ...], str]]:
    for name in CALLS:
        shapes = [(n, n) for n in SIZES + LARGE]
        if name in OF_ANY_SHAPE:
            shapes += [*OBLONG, *((n, m) for m, n in OBLONG)]
        for rows, columns in shapes:
            for batch in BATCHES:
                count = batch[0] if batch else 1
                if rows * columns * count > (1.1e6 if count > 1 else 5e6):
                    continue
                for dtype in ("float32", "float64"):
                    yield name, (*batch, rows, columns), dtype


def record(name: str, shape: tuple[int, ...], dtype: str) -> dict[str, object]:
    matrix = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
    if name not in OF_ANY_SHAPE:
        eye = torch.eye(shape[-1], device="cuda", dtype=matrix.dtype)
        matrix = matrix @ matrix.mT + shape[-1] * eye
    CALLS[name](matrix)
    events = events_of(lambda: CALLS[name](matrix))
    return {"name": name, "shape": shape, "dtype": dtype, "events": events}


def main() -> None:
    with gzip.open(sys.argv[1], "wt") as file:
        for case in cases():
            file.write(json.dumps(record(*case)) + "\n")


if __name__ == "__main__":
    main()
