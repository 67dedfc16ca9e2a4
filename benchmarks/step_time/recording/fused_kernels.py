"""Records the kernels that torch.compile writes for families/fused.py: their text, how Inductor
called them, and their seconds.

    python benchmarks/step_time/recording/fused_kernels.py OUT.jsonl SECONDS SEED EACH

Several processes compile at once; then one function after the other is measured. A line of OUT is a
kernel of a function: [function, kernel, its arguments, the configuration that was chosen, seconds,
text]. Of arguments tensors are [elements, bytes of one, which storage].
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch
import torch._dynamo
from fused import Fused, drawn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

PROCESSES, RUNS = 12, 4
COMPILING = 0.6  # of the seconds


class Launches:
    """What Inductor launches, in order, while it is on."""

    def __init__(self) -> None:
        self.found: list[list[Any]] = []
        self.is_on = False
        # imported before a fork it may begin with CUDA, which a forked process cannot use then
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        own = CachingAutotuner.run

        def run(kernel: Any, *arguments: Any, **options: Any) -> Any:
            result = own(kernel, *arguments, **options)
            if self.is_on:
                self.found.append(_described(kernel, arguments))
            return result

        CachingAutotuner.run = run


def _described(kernel: Any, arguments: tuple[Any, ...]) -> list[Any]:
    storages: dict[int, int] = {}
    described = [
        [a.numel(), a.element_size(), storages.setdefault(a.data_ptr(), len(storages))]
        if isinstance(a, torch.Tensor)
        else a
        for a in arguments
    ]
    config = kernel.launchers[0].config
    chosen = {**config.kwargs, "num_warps": config.num_warps}
    return [kernel.fn.__name__, described, chosen, kernel.fn.src]


class Measured:
    def __init__(self, fused: Fused) -> None:
        self.name = fused.name
        self.compiled = torch.compile(fused.function, dynamic=False)
        self.tensors = fused.tensors

    def run(self, tensors: list[torch.Tensor]) -> None:
        result = self.compiled(*tensors)
        if result.requires_grad:
            result.backward(torch.ones_like(result))
        for tensor in tensors:
            tensor.grad = None

    def record(self, launches: Launches) -> list[list[Any]]:
        tensors = self.tensors()
        self.run(tensors)
        return [[self.name, *kernel] for kernel in recorded(lambda: self.run(tensors), launches)]


def recorded(run: Callable[[], Any], launches: Launches) -> list[list[Any]]:
    """The kernels of one run: name, arguments, configuration, seconds, text."""
    launches.found, launches.is_on = [], True
    run()
    launches.is_on = False
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recording:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    known = {launch[0] for launch in launches.found}
    kernels = sorted(
        (e.start_ns(), e.name(), e.duration_ns())
        for e in recording.profiler.kineto_results.events()
        if e.device_type() != DeviceType.CPU and e.name() in known
    )
    names = [launch[0] for launch in launches.found]
    if [name for _, name, _ in kernels] != RUNS * names:
        print(f"{len(kernels)} kernels of {RUNS} times {len(names)}", flush=True)
        return []
    seconds = [[ns for _, _, ns in kernels[i :: len(names)]] for i in range(len(names))]
    return [
        [*launch[:3], 1e-9 * statistics.median(all_of_it), launch[3]]
        for launch, all_of_it in zip(launches.found, seconds, strict=True)
    ]


def work(all_of_it: list[Fused], out: Path, until: float, go: Any, lock: Any) -> None:
    torch._dynamo.config.cache_size_limit = 64
    launches, ready = Launches(), []
    for fused in all_of_it:
        if time.time() > until:
            print(f"{fused.name}: no time", flush=True)
            continue
        try:
            torch.manual_seed(0)
            measured = Measured(fused)
            measured.run(measured.tensors())
            ready.append(measured)
        except Exception as error:  # the others are worth having
            print(f"{fused.name}: {type(error).__name__} {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()
    go.wait()
    for measured in ready:
        with lock:
            try:
                lines = measured.record(launches)
            except Exception as error:
                print(f"{measured.name}: {type(error).__name__} {str(error)[:300]}", flush=True)
                lines = []
            torch.cuda.empty_cache()
            with open(out, "a") as file:
                for line in lines:
                    print(json.dumps(line), file=file)


def main() -> None:
    out, seconds, seed, each = Path(sys.argv[1]), *map(float, sys.argv[2:5])
    started = time.time()
    everything = list(drawn(int(seed), int(each)))
    context = multiprocessing.get_context("fork")
    go, lock = context.Barrier(PROCESSES), context.Lock()
    until = started + COMPILING * seconds
    processes = [
        context.Process(target=work, args=(everything[i::PROCESSES], out, until, go, lock))
        for i in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(1.0, started + seconds - time.time()))
        if process.is_alive():
            process.kill()
    print(f"{len(everything)} functions, {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
