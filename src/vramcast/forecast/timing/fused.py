"""Seconds of kernels that torch.compile has written, from what their blocks do
(simulate/fused/costs.py)."""

import math
from collections.abc import Sequence

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.tracing.work import OperatorWork

# The fraction of multiprocessors that can ask for all that memory gives, fitted once, to the
# functions of benchmarks/step_time/families/fused.py.
ENOUGH = 0.78


def fused_seconds(
    work: OperatorWork, gpu: Gpu, memory_seconds: float, known: Sequence[float]
) -> float:
    """Memory, the cache and arithmetic overlap, mostly."""
    fixed, _, of_asked, power = known
    num_blocks, num_additions, waiting, asked_bytes = work.sizes
    lanes = peak_flops(gpu, "fp32") / 2  # each multiplies and adds
    arithmetic, asked, idle = work.flops / lanes, 0.0, 1.0
    if num_additions or not num_blocks:  # sizes tell of additions
        waiting = 0
    else:
        idle = max(1.0, gpu.num_multiprocessors / num_blocks)
        asked = asked_bytes / (of_asked * gpu.bandwidth_bytes_per_second)
    memory = memory_seconds * max(1.0, ENOUGH * idle)
    parts = (memory, idle * asked, idle * arithmetic)
    together: float = math.fsum(part**power for part in parts) ** (1 / power)
    return fixed + together + 1e-9 * waiting
