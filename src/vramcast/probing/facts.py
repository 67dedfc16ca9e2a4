"""The facts that a real run reports to the process that started it.

They stay known if the run's process dies.
"""

from collections.abc import Callable
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

import msgspec

from vramcast.hardware.nvml import MemorySource
from vramcast.records.base import Knobs, Seconds, SignedBytes, plain_value, typed
from vramcast.records.measurement import Memory, Outcome, RunFacts

# whether it was measured (or a warm-up), its seconds, its loss
Step = tuple[bool, Seconds, float | None]


class Phase(StrEnum):
    START = "start"
    LOADING = "loading"
    BUILD = "build"
    WARM_UP = "warm-up"
    MEASURE = "measure"
    MEMORY = "memory"
    EVALUATE = "evaluate"
    SAVE = "save"
    TRACE = "trace"


class Facts(RunFacts):
    phase: Phase = Phase.START
    outcome: Outcome | None = None
    # on the machine's monotonic clock, which its processes share
    failed_at_seconds: float | None = None
    knobs: Knobs | None = None
    allocator_settings: str | None = None
    switches: Knobs | None = None
    last: Memory | None = None
    # memory that CUDA and its libraries take outside the allocator, at the end
    outside_bytes: SignedBytes | None = None
    process_source: MemorySource | None = None
    wall_seconds: Seconds | None = None
    step_seconds: list[Seconds] = field(default_factory=list)


class Reporter:
    """Keeps the facts that it hears, and passes them on."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self.facts = Facts()

    def tell(self, **facts: Any) -> None:
        self.hear({"facts": msgspec.to_builtins(facts, enc_hook=plain_value)})

    def step(self, is_measured: bool, seconds: float, loss: float | None) -> None:
        self.hear({"step": [is_measured, seconds, loss]})

    def hear(self, news: dict[str, Any]) -> None:
        if "step" in news:
            is_measured, seconds, loss = typed(news["step"], Step)
            facts = self.facts
            (facts.step_seconds if is_measured else facts.warmup_seconds).append(seconds)
            facts.losses.append(loss)
        else:
            told = typed(news["facts"], Facts)
            new = {name: getattr(told, name) for name in news["facts"]}
            self.facts = replace(self.facts, **new)
        self._send(news)
