"""How fast kernels run and how long the host takes to launch them: measured on one GPU, as
fractions of what its data sheet promises.

A fraction carries over to other GPUs, whose data sheets are in gpus.py. benchmarks/step_time/fit.py
makes the table from recordings.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Rates

TABLE = "sm_90-torch-2.11.json"
# where a GPU has no rate for a precision, the next best it would be computed in
INSTEAD = {"fp8": "bf16", "bf16": "fp16", "fp16": "fp32", "tf32": "fp32"}


@cache
def shipped() -> Rates:
    text = resources.files("vramcast.forecast.timing").joinpath("tables", TABLE).read_text()
    return Rates.from_json(text)


def peak_flops(gpu: Gpu, precision: str) -> float:
    rate = gpu.flops_per_second.get(precision)
    return peak_flops(gpu, INSTEAD[precision]) if rate is None else rate
