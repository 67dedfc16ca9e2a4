"""What is to be run: a plain value that is sent to the worker process."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from vramcast.errors import UsageError
from vramcast.records.base import typed
from vramcast.records.measurement import Device
from vramcast.units import check_timeout, check_whole_number
from vramcast.workload import separated, together
from vramcast.workload.switches import Switches


@dataclass(frozen=True, kw_only=True)
class Trial:
    workload: str
    knobs: dict[str, Any] = field(default_factory=dict)
    device: Device = Device.CUDA
    memory_cap_bytes: int | None = None
    allocator: str | None = None  # None leaves the environment's settings
    switches: Switches = field(default_factory=Switches)
    warmup_steps: int = 2
    measure_steps: int = 20
    trace_folder: str | None = None
    timeout_seconds: float = 600.0
    # For a program: the words of its line, its stdin, and when it is stopped. By default that is
    # when enough was seen.
    line: tuple[str, ...] = ()
    stdin: str | None = None
    num_steps: int | None = None
    whole: bool = False
    num_processes: int = 1
    # the environment of one of several processes
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole_number("--steps", self.measure_steps, 20)
        check_whole_number("--warmup", self.warmup_steps, 2, least=0)
        check_timeout(self.timeout_seconds)
        if self.device == Device.CPU and (self.memory_cap_bytes or self.trace_folder):
            given = "--memory caps" if self.memory_cap_bytes else "--trace is the history of"
            raise UsageError(
                f"{given} a GPU's allocator; with --device cpu there is none.",
                "Leave out one of the two.",
            )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), **separated(self.knobs)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        without_knobs: Self = typed({**data, "knobs": {}}, cls)
        return replace(without_knobs, knobs=together(data))


def device_named(name: str) -> Device:
    if name not in list(Device):
        raise UsageError(f"--device {name!r} is not known.", "Give --device cuda or --device cpu.")
    return Device(name)
