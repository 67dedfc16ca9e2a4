"""What a real run tells the process that started it.

The run sets fields of its `Facts` and tells all of them again whenever some are new. Each step is
told once: their lists grow.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from vramcast.hardware.nvml import MemorySource
from vramcast.records.base import Bytes, Count, Knobs, Seconds, SignedBytes, plain_value
from vramcast.records.measurement import Memory, MemoryOf, Outcome

LISTS = ("step_seconds", "warmup_seconds", "losses")
# whether it was measured or a warm-up, how long it took, its loss
Step = tuple[bool, Seconds, float | None]


class Phase(StrEnum):
    START = "start"
    LOADING = "loading"
    BUILD = "build"
    WARM_UP = "warm-up"
    MEASURE = "measure"
    MEMORY = "memory"
    TRACE = "trace"


@dataclass(kw_only=True)
class Facts:
    """What a run has not told is None."""

    phase: Phase = Phase.START
    outcome: Outcome | None = None
    error: str | None = None
    out_of_memory_on: MemoryOf | None = None
    knobs: Knobs | None = None
    gpu: str | None = None
    capacity_bytes: Bytes | None = None
    torch_version: str = ""
    cuda_version: str | None = None
    driver_version: str | None = None
    driver_model: str | None = None
    allocator_settings: str | None = None
    switches: Knobs | None = None
    build_seconds: Seconds | None = None
    num_parameters: Count | None = None
    # peaks of each phase
    build: Memory | None = None
    first_step: Memory | None = None
    cold: Memory | None = None
    warm: Memory | None = None
    last: Memory | None = None
    # what CUDA and its libraries take outside the allocator: when CUDA has started, and at the end
    context_bytes: SignedBytes | None = None
    outside_bytes: SignedBytes | None = None
    process_source: MemorySource | None = None
    num_alloc_retries: Count | None = None
    wall_seconds: Seconds | None = None
    notes: list[str] = field(default_factory=list)
    step_seconds: list[Seconds] = field(default_factory=list)
    warmup_seconds: list[Seconds] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)

    def hear(self, news: dict[str, Any]) -> None:
        if "step" in news:
            is_measured, seconds, loss = msgspec.convert(news["step"], Step)
            (self.step_seconds if is_measured else self.warmup_seconds).append(seconds)
            self.losses.append(loss)
            return
        told = msgspec.convert(news["facts"], Facts)
        for name in vars(self).keys() - LISTS:
            setattr(self, name, getattr(told, name))


class Reporter:
    """Tells the parent what a run does; what was told stays known when the run's process dies."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self.facts = Facts()

    def phase(self, phase: Phase) -> None:
        self.facts.phase = phase
        self.tell()

    def tell(self) -> None:
        """To be called when fields of `facts` have been set."""
        told = {name: value for name, value in vars(self.facts).items() if name not in LISTS}
        news = {"facts": msgspec.to_builtins(told, enc_hook=plain_value)}
        self._send(news)

    def step(self, is_measured: bool, seconds: float, loss: float | None) -> None:
        news = {"step": [is_measured, seconds, loss]}
        self.facts.hear(news)
        self._send(news)
