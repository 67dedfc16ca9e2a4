"""A law of memory that was fitted to measured runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramcast.records.base import Bytes, Number, Record


@dataclass(frozen=True, kw_only=True)
class FittedRow:
    name: str
    measured_reserved_bytes: Bytes
    fitted_reserved_bytes: Bytes
    error_percent: Number
    left_out_error_percent: (
        float | None
    )  # of a law fitted without this row; None where that is impossible
    allocated_error_percent: Number = 0.0  # of the law itself, without the overhead's noise
    left_out_allocated_error_percent: Number | None = None
    on_floor: bool = False  # its memory is the floor's, and the law was fitted without it


@dataclass(frozen=True, kw_only=True)
class Knob:
    name: str
    share: Number  # of the memory of the largest run that goes when this knob goes to its smallest value
    smallest: Number
    largest: Number


@dataclass(frozen=True, kw_only=True)
class MemoryFit(Record):
    """What `vramcast fit` found for one group of runs."""

    KIND: ClassVar[str] = "memory law"

    group: str
    terms: dict[str, str]
    coefficients: dict[str, Number]
    overhead_bytes: Bytes  # reserved minus allocated: the median
    rows: list[FittedRow]
    knobs: list[Knob]
    floor_bytes: Bytes | None = None  # allocated = max(floor, law), where there is one
    left_out: dict[str, str] = field(default_factory=dict)  # runs that were not used, and why
    notes: list[str] = field(default_factory=list)
    source: str = "fitted"
