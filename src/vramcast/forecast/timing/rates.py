"""How fast kernels run and how long the host takes to launch them: measured on one GPU, as fractions of what its data sheet promises.

A fraction carries over to other GPUs, whose data sheets are in gpus.py. benchmarks/step_time/fit.py makes the table from recordings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from vramcast.records import VERSION, JsonRecord

TABLE = "sm_90-torch-2.11.json"
FIELDS_OF_PRODUCT = (
    "fixed_seconds",
    "fraction_of_peak",
    "fraction_of_bandwidth",
    "split_seconds",
    "prologue",
)
FIELDS_OF_KERNEL = ("fixed_seconds", "fraction_of_bandwidth")
FIELDS_OF_COMPUTE = ("fixed_seconds", "fraction_of_peak", "fraction_of_bandwidth")


@dataclass(frozen=True, kw_only=True)
class Rates(JsonRecord):
    gpu: str
    torch_version: str
    kernels: dict[
        str, list[float]
    ]  # "aten::add plain bf16", or "aten::add plain", or "plain": FIELDS_OF_KERNEL
    products: dict[
        str, list[float]
    ]  # "tensor" (16-bit and tf32), "tensor unaligned" and "fp32": FIELDS_OF_PRODUCT
    compute: dict[
        str, list[float]
    ]  # attention, convolutions and recurrent layers, by operator and precision: FIELDS_OF_COMPUTE
    recurrent_step_seconds: dict[str, float]  # of a recurrent layer's kernel, whatever its size
    host: dict[str, float]  # seconds on the host by kind of operator
    calibrated_on: list[str] = field(
        default_factory=list
    )  # rows of the suites whose kernels and times it was made from
    num_kernels: int = 0  # how many measured kernels are behind it
    source: str = "calibrated"
    version: int = VERSION


@cache
def shipped() -> Rates:
    text = resources.files("vramcast.forecast.timing").joinpath("tables", TABLE).read_text()
    return Rates.from_json(text)
