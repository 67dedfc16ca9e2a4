"""What a run allocated and freed, in order, and what is known about each allocation.

An event is an integer: +i allocates the i-th allocation (from 1), -i frees it, 0 begins a step,
EMPTY_CACHE empties the cache, as in allocator.replay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.records.prediction import LargeTensor, PhaseName
from vramcast.tracing.work import OperatorWork

# In what the device recorded, minus the number of the allocation: another stream may still use the
# memory that was just freed; it can be used again now at the latest.
HELD = -(2**60)
RELEASED = -(2**61)
# The parts of an allocation that a trace's file has where they are known.
FACTS = ("category", "name", "module", "node", "source")


class Allocation(NamedTuple):
    """What is not known is empty."""

    num_bytes: int
    op: str  # such as "aten::addmm"
    category: str = ""
    name: str = ""
    module: str = ""
    node: str = ""  # the autograd node that was running; none in the forward pass
    source: str = ""  # file, line and function
    shape: tuple[int, ...] = ()
    dtype: str = ""
    stream: int = 0

    @property
    def facts(self) -> dict[str, str]:
        return {fact: value for fact in FACTS if (value := getattr(self, fact))}

    def as_tensor(self) -> LargeTensor:
        known = self._asdict()
        op, node, _ = known.pop("op"), known.pop("node"), known.pop("stream")
        known["shape"] = list(self.shape)
        return LargeTensor(operator=f"{op} ({node})" if node else op, **known)


@dataclass(frozen=True, kw_only=True)
class TraceHead:
    """The run that a trace is of."""

    source: Literal["predicted", "measured"]
    workload: str
    knobs: dict[str, Any]
    gpu: str | None
    torch_version: str
    allocator_settings: str


@dataclass(frozen=True, kw_only=True)
class Trace(TraceHead):
    events: Sequence[int]
    allocations: Sequence[Allocation]
    steps: Sequence[int]  # the number of each step, in the order of the zeros in events

    @property
    def sizes(self) -> list[int]:
        return [allocation.num_bytes for allocation in self.allocations]


@dataclass(frozen=True)
class SimulatedRun:
    """What a simulation saw. Allocations are described when asked for: they are many."""

    events: list[int]
    sizes: list[int]
    categories: list[str]
    num_parameters: int
    notes: tuple[str, ...]  # what was not modelled
    torch_version: str
    allocation: Callable[[int], Allocation]  # by its number, from 1
    uses_libraries: bool = False  # flash attention or cuDNN: they load kernels of their own
    uses_solver: bool = False  # cuSOLVER, likewise
    works: Sequence[OperatorWork] = ()  # of the last step, in order
    num_python_calls: int = 0  # functions that the program calls in the last step
    uncalibrated_kernels: tuple[str, ...] = ()  # whose memory is an estimate
    streams: Sequence[int] = ()  # of each allocation; empty where all are on the default stream
    # Allocations that another stream may use when they are freed: from which event on their memory
    # can be used again at the latest.
    held_until: Mapping[int, int] = field(default_factory=dict)
    # What each 0 in the events begins; empty where all are training steps.
    segments: Sequence[PhaseName] = ()
    allocator_settings: str | None = None  # that a program has set itself
    remarks: Sequence[str] = ()  # about the run of a program
    # Of a program: how often each phase did what it is for.
    phase_counts: Mapping[PhaseName, int] = field(default_factory=dict)

    def portable(self) -> Self:
        """Without the descriptions of allocations, which only the process that ran it has."""
        return replace(self, allocation=_not_described)

    def trace(self, **head: Any) -> Trace:
        found = [self.allocation(number) for number in range(1, len(self.sizes) + 1)]
        return Trace(
            source="predicted",
            torch_version=self.torch_version,
            events=self.events,
            # A profiler names operators without their overload, and so does a trace.
            allocations=[a._replace(op=a.op.partition(".")[0]) for a in found],
            steps=range(1, self.events.count(0) + 1),
            **head,
        )


def _not_described(_: int) -> Allocation:
    return Allocation(0, "")


def split_holds(events: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The events without these two, and for each held allocation from which event on it is not."""
    kept: list[int] = []
    held_until: dict[int, int] = {}
    for event in events:
        if event > HELD or event == EMPTY_CACHE:
            kept.append(event)
        elif event <= RELEASED:
            held_until[RELEASED - event] = len(kept)
        else:
            held_until[HELD - event] = len(events)
    return kept, held_until


def in_canonical_order(events: Iterable[int]) -> list[int]:
    """Sorts frees without an allocation between them: autocast clears its cache in the order of a
    hash table, and two runs of a program shall be equal."""
    ordered: list[int] = []
    for is_free, group in groupby(events, lambda event: EMPTY_CACHE < event < 0):
        run = list(group)
        ordered += sorted(run, reverse=True) if is_free else run
    return ordered
