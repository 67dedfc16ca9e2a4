"""Records Triton kernels that people wrote: how they were launched, and their seconds.

    python benchmarks/step_time/recording/jit_kernels.py OUT.jsonl SECONDS FIRST EACH

Of each case of families/own_triton.py and families/others_triton.py so many launches are drawn,
from number FIRST on. Several processes compile and choose configurations first; then one after the
other is measured. A line of OUT is a kernel: [case, number, kernel, grid, warps, its arguments by
name, seconds]. Of arguments tensors are [elements from the first to the last, bytes of one, which
storage].
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")

import others_triton
import own_triton
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from triton.runtime.jit import JITFunction

CASES = (*own_triton.CASES, *others_triton.CASES)
PROCESSES, RUNS, COMPILING = 10, 4, 0.55
NUM_WARPS = 4
TYPE = "type "  # constants that are types of Triton


class Launches:
    """What is launched, in order, while it is on."""

    def __init__(self) -> None:
        self.found: list[list[Any]] = []
        self.is_on = False
        own = JITFunction.run

        def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            if self.is_on and not warmup:
                self.found.append(described(kernel, arguments, grid, options))
            return own(kernel, *arguments, grid=grid, warmup=warmup, **options)

        JITFunction.run = run


def described(kernel: Any, arguments: tuple[Any, ...], grid: Any, options: dict[str, Any]) -> Any:
    defaults = {each.name: each.default for each in kernel.params if each.has_default}
    given = {**defaults, **dict(zip(kernel.arg_names, arguments, strict=False)), **options}
    sides = grid(given) if callable(grid) else grid
    storages: dict[int, int] = {}
    told = {name: _told(given[name], storages) for name in kernel.arg_names}
    sides = [int(side) for side in (sides if isinstance(sides, tuple | list) else [sides])]
    return [kernel.__name__, sides, given.get("num_warps", NUM_WARPS), told]


def _told(value: Any, storages: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        steps = zip(value.shape, value.stride(), strict=True)
        extent = 1 + sum((size - 1) * step for size, step in steps) if value.numel() else 0
        return [extent, value.element_size(), storages.setdefault(value.data_ptr(), len(storages))]
    value = getattr(value, "value", value)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain else f"{TYPE}{value}"


def drawn(first: int, each: int) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    for number in range(first, first + each):
        for case in CASES:
            yield (
                case.__name__,
                number,
                lambda case=case, number=number: case(random.Random(f"{case.__name__} {number}")),
            )


def prepared(name: str, number: int, make: Callable[[], Any]) -> None:
    try:
        launch = make()
        launch()
        torch.cuda.synchronize()
    except Exception as problem:
        print(f"{name} {number}: {type(problem).__name__} {str(problem)[:200]}", flush=True)


def prepare(part: int, first: int, each: int) -> None:
    for place, one in enumerate(drawn(first, each)):
        if place % PROCESSES == part:
            prepared(*one)


def measured(launches: Launches, launch: Callable[[], Any]) -> list[list[Any]]:
    for _ in range(2):
        launch()
    torch.cuda.synchronize()
    launches.found.clear()
    launches.is_on = True
    launch()
    launches.is_on = False
    found = list(launches.found)
    torch.cuda.synchronize()
    names = {each[0] for each in found}
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(RUNS):
            launch()
        torch.cuda.synchronize()
    events = sorted(
        (e for e in profiled.events() if e.device_type == DeviceType.CUDA and e.name in names),
        key=lambda e: e.time_range.start,
    )
    if len(events) != RUNS * len(found):
        raise ValueError(f"{len(events)} kernels for {len(found)} launches")
    by_launch = [events[place :: len(found)] for place in range(len(found))]
    if any(e.name != one[0] for one, own in zip(found, by_launch, strict=True) for e in own):
        raise ValueError("kernels in another order than their launches")
    seconds = [statistics.median(e.device_time for e in own) * 1e-6 for own in by_launch]
    return [[*one, took] for one, took in zip(found, seconds, strict=True)]


def main() -> None:
    out, seconds, first, each = Path(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:])
    until, begun = time.time() + seconds, time.time()
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=prepare, args=(part, first, each)) for part in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, begun + COMPILING * seconds - time.time()))
    for worker in workers:
        worker.kill()
    print(f"compiled, {until - time.time():.0f} s before the end", flush=True)
    launches = Launches()
    with out.open("w") as file:
        for name, number, make in drawn(first, each):
            if time.time() > until:
                print(f"{name} {number}: no time", flush=True)
                continue
            try:
                for row in measured(launches, make()):
                    print(json.dumps([name, number, *row]), file=file, flush=True)
            except Exception as problem:
                print(f"{name} {number}: {type(problem).__name__} {str(problem)[:200]}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
