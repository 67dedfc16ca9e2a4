"""How fast kernels run and how long the host takes to launch them: measured on one GPU, as
fractions of what its data sheet promises.

A fraction carries over to other GPUs, whose data sheets are in gpus.py. benchmarks/step_time/fit.py
makes the table from recordings.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from vramcast.records.calibration import Rates

TABLE = "sm_90-torch-2.11.json"


@cache
def shipped() -> Rates:
    text = resources.files("vramcast.forecast.timing").joinpath("tables", TABLE).read_text()
    return Rates.from_json(text)
