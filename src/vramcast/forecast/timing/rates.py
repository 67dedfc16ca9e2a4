"""The speed of kernels, and the host's time to launch them, measured on one GPU.

Speeds are fractions of what the GPU's data sheet promises. benchmarks/step_time/fit.py makes the
table from recordings.
"""

from dataclasses import replace
from functools import cache
from importlib import resources

from vramcast.hardware.calibration.host import known_speed
from vramcast.hardware.gpus import Gpu
from vramcast.records.calibration import Rates

TABLE = "sm_90-torch-2.11.json"
# of the seconds in Rates.host, these depend on the GPU and not on the host
OF_GPU = ("gap", "latency")
# where a GPU has no rate for a precision, the next best that it would be computed in
INSTEAD = {"fp8": "bf16", "bf16": "fp16", "fp16": "fp32", "tf32": "fp32"}


@cache
def shipped() -> Rates:
    text = resources.files("vramcast.forecast.timing").joinpath("tables", TABLE).read_text()
    return Rates.from_json(text)


def rates_here() -> Rates:
    """The shipped rates, with this machine's host speed where `vramcast calibrate --host` has
    run."""
    rates, speed = shipped(), known_speed()
    if speed is None or rates.host_step_seconds is None:
        return rates
    factor = speed.step_seconds / rates.host_step_seconds
    host = {name: s if name in OF_GPU else factor * s for name, s in rates.host.items()}
    name = f"{speed.machine}, estimated from CPU tensors by vramcast calibrate --host"
    return replace(rates, host=host, host_name=name)


def peak_flops(gpu: Gpu, precision: str) -> float:
    rate = gpu.flops_per_second.get(precision)
    return peak_flops(gpu, INSTEAD[precision]) if rate is None else rate
