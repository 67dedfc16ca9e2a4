"""What a run allocated and freed, in order, and what is known about each allocation.

An event is an integer: +i allocates the i-th allocation (from 1), -i frees it, 0 begins a step,
EMPTY_CACHE empties the cache, as in allocator.replay.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vramcast.allocator.addresses import Starts
from vramcast.allocator.replay import EMPTY_CACHE, NEVER
from vramcast.records.prediction import LargeTensor, PhaseName
from vramcast.tracing.work import Works

# Events of the device's recording, each minus the number of the allocation. HELD: another stream
# may still use the memory that was just freed. RELEASED: by predicted times, it can be used again
# now. KNOWN: it can be used again now at the latest.
HELD = -(2**60)
RELEASED = 2 * HELD
KNOWN = 3 * HELD
# The fields of an allocation that a trace's file has, if known.
FACTS = ("category", "name", "module", "node", "source")


class Allocation(NamedTuple):
    """An allocation. Fields that are not known are empty."""

    num_bytes: int
    op: str  # such as "aten::addmm"
    category: str = ""
    name: str = ""
    module: str = ""
    node: str = ""  # the autograd node that was running; "" in the forward pass
    source: str = ""  # file, line and function
    shape: tuple[int, ...] = ()
    dtype: str = ""
    stream: int = 0
    phase: str = ""  # forward, backward or update

    @property
    def facts(self) -> dict[str, str]:
        return {fact: value for fact in FACTS if (value := getattr(self, fact))}

    def as_tensor(self) -> LargeTensor:
        return LargeTensor(
            num_bytes=self.num_bytes,
            operator=f"{self.op} ({self.node})" if self.node else self.op,
            category=self.category,
            name=self.name,
            module=self.module,
            source=self.source,
            shape=list(self.shape),
            dtype=self.dtype,
        )


class Labels(NamedTuple):
    codes: NDArray[np.int32]
    words: Sequence[str]  # by code

    @classmethod
    def of(cls, words: Iterable[str]) -> "Labels":
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(np.array(codes, np.int32), list(numbers))

    def used(self) -> list[int]:
        return np.flatnonzero(np.bincount(self.codes)).tolist()


class Allocations:
    """Millions of allocations as arrays. Those that differ only in bytes share a description."""

    def __init__(
        self, num_bytes: ArrayLike, description: ArrayLike, descriptions: Sequence[Allocation]
    ) -> None:
        self.num_bytes: NDArray[np.int64] = np.asarray(num_bytes, np.int64)
        self.description: NDArray[np.int32] = np.asarray(description, np.int32)
        self.descriptions = descriptions

    @classmethod
    def of(cls, allocations: Iterable[Allocation]) -> "Allocations":
        numbers: dict[Allocation, int] = {}
        all_bytes, description = [], []
        for allocation in allocations:
            all_bytes.append(allocation.num_bytes)
            without_bytes = allocation._replace(num_bytes=0)
            description.append(numbers.setdefault(without_bytes, len(numbers)))
        return cls(all_bytes, description, list(numbers))

    def __len__(self) -> int:
        return len(self.num_bytes)

    def __getitem__(self, index: int) -> Allocation:
        description: Allocation = self.descriptions[int(self.description[index])]
        return description._replace(num_bytes=int(self.num_bytes[index]))

    def __iter__(self) -> Iterator[Allocation]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allocations) and list(self) == list(other)

    def labels(self, fact: str, where_empty: str = "") -> Labels:
        """A fact, or the operator, of each allocation."""
        words = Labels.of(getattr(each, fact) or where_empty for each in self.descriptions)
        return Labels(words.codes[self.description], words.words)


@dataclass(frozen=True, kw_only=True)
class TraceHead:
    source: Literal["predicted", "measured"]
    workload: str
    knobs: dict[str, Any]
    gpu: str | None
    torch_version: str
    allocator_settings: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace(TraceHead):
    """A trace. Lists given for its arrays are converted."""

    events: NDArray[np.int64]
    allocations: Allocations
    steps: Sequence[int]  # the number of each step, in the order of the zeros in events

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", np.asarray(self.events, np.int64))
        if not isinstance(self.allocations, Allocations):
            object.__setattr__(self, "allocations", Allocations.of(self.allocations))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Trace)
            and all(getattr(self, f.name) == getattr(other, f.name) for f in fields(TraceHead))
            and np.array_equal(self.events, other.events)
            and self.allocations == other.allocations
            and list(self.steps) == list(other.steps)
        )

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.allocations.num_bytes


@dataclass
class Compilations:
    # Allocations made while something was compiled or timed: the number of the first, and the
    # number after the last.
    spans: list[tuple[int, int]] = field(default_factory=list)
    # How often a function was compiled again, by its name and the reason.
    recompilations: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Of workspaces of cuBLAS that were first taken meanwhile: the last allocation before the
    # program itself used them; 0 if it never did.
    used_after: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulatedRun:
    """The result of a simulation. Lists given for its arrays are converted. Allocations are many,
    so they are described only on demand."""

    events: NDArray[np.int64]
    sizes: NDArray[np.int64]
    categories: Labels
    num_parameters: int
    notes: tuple[str, ...]  # what was not modelled
    torch_version: str
    allocation: Callable[[int], Allocation]  # by its number, from 1
    uses_libraries: bool = False  # flash attention or cuDNN: they load kernels of their own
    uses_solver: bool = False  # cuSOLVER, which does too
    works: Works = field(default_factory=lambda: Works.of(()))  # the work of the last step
    num_python_calls: int = 0  # functions that the program calls in the last step
    uncalibrated_kernels: tuple[str, ...] = ()  # their memory is an estimate
    # for scaled_dot_product_attention: the order in which kernels are tried, and those used
    attention_order: tuple[str, ...] = ()
    attention_kernels: tuple[str, ...] = ()
    num_trainable_parameters: int | None = None
    num_communicators: int = 0  # NCCL's, with other GPUs
    # Whether memory is given back after a certain time, so that it may also be at once.
    keeps_by_time: bool = False
    tries_kernels: bool = False  # cudnn.benchmark
    asks_overlaps: bool = False  # the program asks which boxes overlap, which is not known
    # the peak, if a value that was not computed decided what the program did; else 0
    guessed_with_bytes: int = 0
    pipeline_ranks: Sequence[int] = ()  # the ranks that have the stages of a pipeline
    # the stream of each allocation; empty if all are on the default stream
    streams: NDArray[np.int64] | tuple[()] = ()
    # for each allocation whether forward, backward or update (tracing/work.py); empty if unknown
    parts: NDArray[np.int32] | tuple[()] = ()
    # For allocations that another stream may still use when they are freed: the event from which on
    # their memory can be used again, by predicted times and at the latest.
    held_until: Mapping[int, int] = field(default_factory=dict)
    held_at_most_until: Mapping[int, int] = field(default_factory=dict)
    starts: Starts = NEVER
    # What each 0 in the events begins; empty where all are training steps.
    segments: Sequence[PhaseName] = ()
    allocator_settings: str | None = None  # set by the program itself
    remarks: Sequence[str] = ()  # about the run of a program
    # Only of a program: the number of steps, forward passes or saves in each phase.
    phase_counts: Mapping[PhaseName, int] = field(default_factory=dict)
    compilations: Compilations | None = None  # only if something was compiled

    def circumstances(self) -> dict[str, Any]:
        """What a replay needs beside events and sizes."""
        return {"keys": self.streams, "held_until": self.held_until, "starts": self.starts}

    def portable(self) -> Self:
        """The run without descriptions of allocations, which only the process that ran it has."""
        return replace(self, allocation=_not_described)

    def __post_init__(self) -> None:
        for name in ("events", "sizes"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        if not isinstance(self.categories, Labels):
            object.__setattr__(self, "categories", Labels.of(self.categories))
        object.__setattr__(self, "works", Works.of(self.works))

    def trace(self, **head: Any) -> Trace:
        found = (self.allocation(number) for number in range(1, len(self.sizes) + 1))
        return Trace(
            source="predicted",
            torch_version=self.torch_version,
            events=self.events,
            # A profiler names operators without their overload, and so does a trace. Shapes and
            # types are not part of it.
            allocations=Allocations.of(
                a._replace(op=a.op.partition(".")[0], shape=(), dtype="", phase="") for a in found
            ),
            steps=range(1, int(np.count_nonzero(self.events == 0)) + 1),
            **head,
        )


def _not_described(_: int) -> Allocation:
    return Allocation(0, "")


def split_holds(
    all_events: ArrayLike,
) -> tuple[NDArray[np.int64], dict[int, int], dict[int, int]]:
    """The events without HELD, RELEASED and KNOWN; and for each held allocation, the event from
    which on it is free, by predicted times and at the latest."""
    events = np.asarray(all_events, np.int64)
    is_kept = (events > HELD) | (events == EMPTY_CACHE)
    if is_kept.all():
        return events, {}, {}
    kept = events[is_kept]
    held_until: dict[int, int] = {}
    at_most: dict[int, int] = {}
    num_kept = np.cumsum(is_kept)
    for index in np.flatnonzero(~is_kept).tolist():
        event = int(events[index])
        if event <= KNOWN:
            at_most[KNOWN - event] = int(num_kept[index])
        elif event <= RELEASED:
            held_until[RELEASED - event] = int(num_kept[index])
        else:
            held_until[HELD - event] = at_most[HELD - event] = len(events)
    return kept, held_until, at_most


def in_canonical_order(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """The events with frees sorted that have no allocation between them. Autocast clears its cache
    in the order of a hash table, but two runs of a program must be equal."""
    is_free = (events < 0) & (events != EMPTY_CACHE)
    # most are in order already: the oldest first
    is_wrong = is_free[:-1] & is_free[1:] & (events[:-1] < events[1:])
    if not is_wrong.any():
        return events
    ordered = events.copy()
    run = np.cumsum(np.diff(is_free, prepend=False))
    has_wrong = np.zeros(run[-1] + 1, bool)
    has_wrong[run[:-1][is_wrong]] = True
    place = np.flatnonzero(has_wrong[run])
    ordered[place] = events[place][np.lexsort((-events[place], run[place]))]
    return ordered


def bytes_by_event(events: NDArray[np.int64], block_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """By how much each event changes the allocated bytes."""
    return by_event(events, 0, block_bytes, -1)


def by_event(
    events: NDArray[np.int64], otherwise: int, values: NDArray[Any], when_freed: int = 1
) -> NDArray[Any]:
    """For each event the value of its allocation, times `when_freed` at a free; or `otherwise`."""
    count = len(values)
    all_of_them = np.empty(2 * count + 1, values.dtype)
    all_of_them[0], all_of_them[1 : count + 1] = otherwise, values
    # a free, which is negative, indexes from the end
    np.multiply(values[::-1], when_freed, out=all_of_them[count + 1 :])
    if (is_emptied := events == EMPTY_CACHE).any():
        events = np.where(is_emptied, 0, events)
    found: NDArray[Any] = all_of_them[events]
    return found


def made_and_freed(
    events: NDArray[np.int64], num_allocations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The events that make and free each allocation; len(events) if there is none."""
    made, freed = np.full((2, num_allocations), len(events))
    is_made, is_freed = events > 0, (events < 0) & (events >= -num_allocations)
    made[events[is_made] - 1] = np.flatnonzero(is_made)
    freed[-events[is_freed] - 1] = np.flatnonzero(is_freed)
    return made, freed
