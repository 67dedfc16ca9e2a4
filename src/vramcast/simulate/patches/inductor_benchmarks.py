"""What Inductor times while it compiles allocates its memory, and takes its predicted time.

Why: without a GPU there is nothing to measure. By these times Inductor decides whether to pad
products, and which of several kernels to use.
"""

import sys
from typing import Any

import torch

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import rates_here
from vramcast.simulate.gpu import SimulatedGpu
from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.runtime.benchmarking"


def apply(patcher: Patcher) -> None:
    def benchmark_gpu(self: Any, call: Any, *_: Any, **options: Any) -> Any:
        """Like InductorBenchmarker, which calls the function once without and then often with its
        buffer."""
        patcher.gpu.was_timed = True
        patcher.gpu.num_timed += 1
        milliseconds = 1e3 * _timed(patcher.gpu, call)
        buffer_bytes = torch.cuda.get_device_properties().L2_cache_size
        buffer = torch.empty(buffer_bytes // 4, dtype=torch.int, device="cuda")
        call()
        del buffer
        return [milliseconds] if options.get("return_mode") == "all" else milliseconds

    benchmarking = sys.modules[LIBRARY]
    for name in ("TritonBenchmarker", "InductorBenchmarker", "TorchProfilerBenchmarker"):
        if hasattr(benchmarking, name):
            patcher.put(getattr(benchmarking, name), "benchmark_gpu", benchmark_gpu)


def _timed(gpu: SimulatedGpu, call: Any) -> float:
    begin = gpu.device.library.vramcast_num_work()
    call()
    rates = rates_here()
    works = map(gpu.device.operator_work, gpu.device.work(begin))
    return sum(kernel_time(work, gpu.model, rates).seconds for work in works)
