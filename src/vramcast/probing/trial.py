"""What is to be run: a plain value that travels to the worker process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from vramcast.errors import UsageError
from vramcast.probing.contract import STALL_FLOOR_SECONDS
from vramcast.workload import separated, together
from vramcast.workload.switches import Switches

DEVICES = ("cuda", "cpu")


@dataclass(frozen=True, kw_only=True)
class Trial:
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    device: str = "cuda"
    memory_cap_bytes: int | None = None
    allocator: str | None = None  # None leaves the environment's
    switches: Switches = field(default_factory=Switches)
    warmup_steps: int = 2
    measure_steps: int = 20
    seed: int = 0
    trace_folder: str | None = None
    timeout_seconds: float = 600.0
    stall_floor_seconds: float = STALL_FLOOR_SECONDS

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UsageError(
                f"A probe runs on one of {', '.join(DEVICES)}, not {self.device!r}.",
                "For example --device cpu.",
            )
        if type(self.measure_steps) is not int or self.measure_steps < 1:
            raise UsageError(
                f"--steps must be a whole number from 1 on, not {self.measure_steps}.",
                "For example --steps 20.",
            )
        if type(self.warmup_steps) is not int or self.warmup_steps < 0:
            raise UsageError(
                f"--warmup must be a whole number from 0 on, not {self.warmup_steps}.",
                "For example --warmup 2.",
            )
        if not self.timeout_seconds > 0:  # nan is not
            raise UsageError(
                f"The time limit --timeout must be positive, not {self.timeout_seconds:g} s.",
                "For example --timeout 600.",
            )
        if self.device == "cpu" and self.memory_cap_bytes is not None:
            raise UsageError(
                "--memory caps a GPU's allocator; with --device cpu there is none.",
                "Leave out one of the two.",
            )
        if self.device == "cpu" and self.trace_folder is not None:
            raise UsageError(
                "--trace is the history of a GPU's allocator; with --device cpu there is none.",
                "Leave out one of the two.",
            )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), **separated(self.knobs)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Trial:
        others = {key: value for key, value in data.items() if key != "knobs_text"}
        switches = Switches(**data["switches"])
        return Trial(**{**others, "knobs": together(data), "switches": switches})
