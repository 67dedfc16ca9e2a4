"""Models trained under one protocol, from best to worst."""

from dataclasses import field
from typing import Any

from vramcast.records.base import Bytes, Count, Number, Part, Record, Seconds, require


class ModelResult(Part):
    """One model over all its seeds."""

    model: str
    parameters: Count | None
    seeds: list[int]
    last_losses: list[Number]  # one a seed
    mean_last_loss: Number
    spread: Number | None  # the standard deviation over seeds; None with one seed
    noise: Number | None  # of one run's metric, estimated from it; None with several seeds
    tokens: Count
    tokens_per_second: Number | None
    peak_memory_bytes: Bytes | None
    training_seconds: Seconds


class Difference(Part):
    """Another model less the best one."""

    model: str
    difference: Number
    standard_error: Number
    interval: tuple[Number, Number]  # 95 %
    p_value: Number  # corrected where there are several tests
    distinguishable: bool
    how: str


class Comparison(Record, kind="comparison"):
    metric: str
    protocol: str
    protocol_hash: str
    data: str
    environment: dict[str, Any]
    models: list[ModelResult]  # from best to worst
    differences: list[Difference]
    notes: list[str] = field(default_factory=list)
    source: str = "compared"

    @property
    def decided(self) -> bool:
        """The best model is distinguishable from the next one."""
        return self.differences[0].distinguishable

    def check(self) -> None:
        is_complete = len(self.differences) == len(self.models) - 1 > 0
        require(is_complete, "models and differences do not match: one for each model but the best")
        is_sound = all(each.interval[0] <= each.interval[1] for each in self.differences)
        require(is_sound, "differences: the ends of an interval are out of order")
