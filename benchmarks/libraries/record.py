"""Records what GPU libraries allocate: Fourier transforms, solvers, CTC, sparse products.

    PYTHONPATH=src python benchmarks/libraries/record.py --out FILE.jsonl --seconds 300

Every case is run in random sizes until the time is spent. One line a case:

    name, sizes     what was called, as in CASES, and with which sizes
    first, second   the allocator's events of two calls: a positive size is taken, a negative one
                    given back
    seconds         the least of five later calls

A line with `error` is a case that did not run. Without a GPU the cases run on the CPU in their
smallest sizes and have no events, which is a check of this script.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from vramcast.hardware.calibration.measure import allocations_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Call = Callable[[], Any]
Case = Callable[..., Call]
LENGTHS = (
    *(64, 100, 127, 128, 131, 256, 400, 500, 512, 1000, 1024, 2048, 4096, 4099, 8192, 16384),
    *(10_000, 16_000, 30_000, 32_768, 48_000, 65_536, 88_200, 131_072, 160_000, 1 << 20),
)
WIDTHS = (16, 21, 32, 48, 64, 85, 96, 128, 160, 224, 256, 421, 512)
RANKS = (8, 16, 32, 64, 100, 128, 256, 500, 512, 768, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def transform(name: str, dtype: torch.dtype) -> Case:
    """Over all but the first two dimensions."""

    def case(*shape: int) -> Call:
        x = torch.randn(shape, device=DEVICE, dtype=dtype)
        dims = tuple(range(2, len(shape)))
        function = getattr(torch.fft, name)
        return lambda: function(x, dim=dims)

    return case


def solver(function: Callable[[torch.Tensor], Any]) -> Case:
    """Of positive definite matrices, alone or in a batch."""

    def case(rank: int, batch: int) -> Call:
        shape = (rank, rank) if batch == 1 else (batch, rank, rank)
        a = torch.randn(shape, device=DEVICE)
        a = a @ a.mT + rank * torch.eye(rank, device=DEVICE)
        return lambda: function(a)

    return case


def ctc(on_host: bool) -> Case:
    """With targets of 32 bits on the host the loss is cuDNN's."""

    def case(length: int, batch: int, symbols: int, target: int) -> Call:
        x = torch.randn(length, batch, symbols, device=DEVICE, requires_grad=True)
        count = batch * target
        targets = torch.randint(1, symbols, (count,), dtype=torch.int32 if on_host else torch.int64)
        targets = targets if on_host else targets.to(DEVICE)
        lengths = [torch.full((batch,), size, dtype=torch.int32) for size in (length, target)]

        def call() -> Any:
            loss = F.ctc_loss(x.log_softmax(-1), targets, *lengths)
            return loss, torch.autograd.grad(loss, x)

        return call

    return case


def sparse_product(layout: torch.layout) -> Case:
    def case(rows: int, columns: int, per_row: int) -> Call:
        chosen = torch.randint(0, rows, (rows, per_row), device=DEVICE)
        where = torch.stack([torch.arange(rows, device=DEVICE).repeat_interleave(per_row)])
        indices = torch.cat([where, chosen.flatten()[None]])
        values = torch.ones(indices.shape[1], device=DEVICE)
        a = torch.sparse_coo_tensor(indices, values, (rows, rows)).coalesce()
        matrix = a.to_sparse_csr() if layout is torch.sparse_csr else a
        dense = torch.randn(rows, columns, device=DEVICE)
        return lambda: matrix @ dense

    return case


def batch_norm(channels_last: bool, dtype: torch.dtype) -> Case:
    def case(batch: int, channels: int, width: int) -> Call:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        x = torch.randn(batch, channels, width, width, device=DEVICE, dtype=dtype)
        x = x.contiguous(memory_format=layout).requires_grad_()
        norm = torch.nn.BatchNorm2d(channels).to(DEVICE)

        def call() -> Any:
            out = norm(x)
            return out, torch.autograd.grad(out, x, torch.ones_like(out))

        return call

    return case


# name: (case, what each size may be)
CASES: dict[str, tuple[Case, tuple[tuple[int, ...], ...]]] = {
    **{
        f"{name} {len(sizes)}-d {str(dtype).removeprefix('torch.')}": (
            transform(name, dtype),
            (BATCHES, BATCHES, *sizes),
        )
        for name, dtypes in (
            ("rfftn", (torch.float32, torch.float64)),
            ("irfftn", (torch.complex64,)),
            ("fftn", (torch.complex64, torch.float32)),
        )
        for dtype in dtypes
        for sizes in ((LENGTHS,), (WIDTHS, WIDTHS), (WIDTHS[:8],) * 3)
    },
    **{
        name: (solver(function), (RANKS, (1, 1, *BATCHES)))
        for name, function in {
            "cholesky": torch.linalg.cholesky,
            "qr": torch.linalg.qr,
            "eigh": torch.linalg.eigh,
            "svd": lambda a: torch.linalg.svd(a, full_matrices=False),
            "inv": torch.linalg.inv,
            "solve": lambda a: torch.linalg.solve(a, a),
            "lu_factor": torch.linalg.lu_factor,
            "lstsq": lambda a: torch.linalg.lstsq(a, a),
            "slogdet": torch.linalg.slogdet,
            "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a, upper=True),
            "eigvals": torch.linalg.eigvals,
            "matrix_exp": torch.linalg.matrix_exp,
        }.items()
    },
    **{
        f"ctc {where}": (
            ctc(where == "cudnn"),
            ((50, 128, 256, 1000), BATCHES, (20, 32, 128, 1024), (5, 10, 20, 40)),
        )
        for where in ("cudnn", "native")
    },
    **{
        f"sparse {str(layout).removeprefix('torch.sparse_')}": (
            sparse_product(layout),
            ((1000, 10_000, 100_000), (16, 64, 256), (3, 10, 30)),
        )
        for layout in (torch.sparse_coo, torch.sparse_csr)
    },
    **{
        f"batch_norm {'nhwc' if last else 'nchw'} {str(dtype).removeprefix('torch.')}": (
            batch_norm(last, dtype),
            (BATCHES[1:], (32, 64, 128, 256, 512, 1024, 2048), (1, 7, 14, 28, 56, 112)),
        )
        for last in (False, True)
        for dtype in (torch.float32, torch.bfloat16)
    },
}
MOST_ELEMENTS = 1 << 28
MOST_ROWS = 4096  # of all matrices of a batch: decompositions take seconds for each thousand


def measure(call: Call) -> dict[str, Any]:
    if DEVICE == "cpu":
        call()
        return {"first": [], "second": [], "seconds": None}
    first, second = allocations_of(call), allocations_of(call)
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return {"first": first, "second": second, "seconds": min(times)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    deadline, chance = time.monotonic() + options.seconds, random.Random(options.seed)
    head = {"torch_version": torch.__version__, "cuda_version": torch.version.cuda}
    head["gpu"] = torch.cuda.get_device_name() if DEVICE == "cuda" else None
    count, names = 0, list(CASES)
    with open(options.out, "w") as file:
        print(json.dumps(head), file=file)
        while time.monotonic() < deadline:
            chance.shuffle(names)
            for name in names:
                if line := _one(name, chance):
                    print(json.dumps(line), file=file, flush=True)
                    count += 1
                if time.monotonic() > deadline:
                    break
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
    print(f"{count} cases recorded", file=sys.stderr)


def _one(name: str, chance: random.Random) -> dict[str, Any] | None:
    """None where the sizes are too large together."""
    case, choices = CASES[name]
    sizes = [chance.choice(each) if DEVICE == "cuda" else min(each) for each in choices]
    if math.prod(sizes) > (MOST_ROWS if choices[0] is RANKS else MOST_ELEMENTS):
        return None
    line: dict[str, Any] = {"name": name, "sizes": sizes}
    try:
        return {**line, **measure(case(*sizes))}
    except Exception as problem:
        return {**line, "error": f"{type(problem).__name__}: {problem}"[:200]}


if __name__ == "__main__":
    main()
