"""Operators as the tests of times give them."""

from __future__ import annotations

from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import (
    FORWARD,
    PLAIN,
    OperatorWork,
)

H200 = find_gpu("h200")
BF16, FP32 = 15, 6


def product(
    rows: int, columns: int, inner: int, *, dtype: int = BF16, access: int = PLAIN
) -> OperatorWork:
    num_bytes = 2.0 * (rows * inner + inner * columns + rows * columns)
    return OperatorWork(
        "aten::mm",
        dtype,
        2.0 * rows * columns * inner,
        num_bytes,
        (1, rows, columns, inner),
        FORWARD,
        access,
    )


def addition(num_bytes: float, access: int = PLAIN) -> OperatorWork:
    return OperatorWork("aten::add", BF16, 0.0, num_bytes, (0, 0, 0, 0), FORWARD, access)


def seconds(work: OperatorWork, gpu: str = "h200") -> float:
    return kernel_time(work, find_gpu(gpu), shipped()).seconds
