"""What a real run allocated and freed, as the rows of a memory trace.

Sizes and order come from the allocator's history, operators from the profiler. Neither changes what
a program allocates. They are matched by address: the n-th allocation there is the same in both.
Where their counts differ, the operator is "".
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from vramcast.errors import EnvironmentProblem
from vramcast.simulate.locations import HIDDEN, Location

MAX_ENTRIES = 4_000_000
OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
ENGINE = "autograd::engine::evaluate_function: "
Row = list[Any]


class Maker(NamedTuple):
    op: str = ""
    node: str = ""


class Mark(NamedTuple):
    """A step or an emptied cache, with the numbers of allocations and frees before it."""

    num_allocs: int
    num_frees: int
    row: Row


class History:
    """Records from start() to finish(). Like a simulation, it begins with a small tensor."""

    def __init__(self) -> None:
        self._memory: Any = torch.cuda.memory
        self._marks: list[Mark] = []
        self._base = (0, 0)
        self._profiler: Any = None
        self._empty_cache: Callable[[], None] = torch.cuda.empty_cache

    def start(self) -> None:
        self._memory._record_memory_history(
            max_entries=MAX_ENTRIES, stacks="python", context="alloc", clear_history=True
        )
        self._base = self._so_far()
        self._profiler = _profiler()
        self._profiler.start()
        torch.cuda.empty_cache = self._memory.empty_cache = self._emptying
        torch.empty(1, device="cuda")

    def mark_step(self, number: int) -> None:
        self._mark(["step", number])

    def finish(self) -> tuple[list[Row], dict[str, Any]]:
        """The rows of the trace file, and the snapshot to be pickled beside it."""
        torch.cuda.empty_cache = self._memory.empty_cache = self._empty_cache
        num_allocs, _ = self._so_far()
        snapshot: dict[str, Any] = self._memory._snapshot()
        self._memory._record_memory_history(enabled=None)
        self._profiler.stop()
        device = torch.cuda.current_device()
        entries = snapshot["device_traces"][device]
        if sum(entry["action"] == "alloc" for entry in entries) != num_allocs:
            raise EnvironmentProblem(
                f"The allocator's history of {len(entries)} events is not complete: "
                f"the run made {num_allocs} allocations.",
                f"It holds {MAX_ENTRIES} events: trace fewer steps.",
            )
        roots = self._profiler.profiler.kineto_results.experimental_event_tree()
        makers = makers_by_address(roots, torch.device("cuda", device))
        return rows_of(entries, self._marks, makers), snapshot

    def _emptying(self) -> None:
        self._mark(["empty_cache"])
        self._empty_cache()

    def _mark(self, row: Row) -> None:
        self._marks.append(Mark(*self._so_far(), row))

    def _so_far(self) -> tuple[int, int]:
        """The numbers of allocations and frees since the start."""
        # torch.cuda.memory_stats() is empty while CUDA starts, which is when a program's history
        # begins
        stats = torch._C._cuda_memoryStats(torch.cuda.current_device())["allocation"]["all"]
        return stats["allocated"] - self._base[0], stats["freed"] - self._base[1]


def _profiler() -> Any:
    from torch._C._profiler import _ExperimentalConfig

    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        # torch 2.10 and 2.11 warn without it that events of earlier cycles are dropped
        acc_events=True,
        experimental_config=_ExperimentalConfig(capture_overload_names=True),
    )


def rows_of(
    entries: Sequence[Mapping[str, Any]],
    marks: Sequence[Mark],
    makers: Mapping[int, Sequence[Maker]],
) -> list[Row]:
    """The rows of the trace, without frees of memory that was allocated before the history
    began."""
    counts = Counter(entry["addr"] for entry in entries if entry["action"] == "alloc")
    in_turn = {
        address: iter(found) for address, found in makers.items() if len(found) == counts[address]
    }
    rows: list[Row] = []
    alive: dict[int, int] = {}
    waiting = list(reversed(marks))
    num_allocs = num_frees = 0
    for entry in entries:
        address = entry["addr"]
        if entry["action"] == "alloc":
            # also places marks whose frees the device has not completed yet
            _place(waiting, rows, num_allocs)
            num_allocs += 1
            alive[address] = num_allocs
            maker = next(in_turn.get(address, iter(())), Maker())
            known = {"node": maker.node, "source": source_of(entry.get("frames", ()))}
            facts = {name: value for name, value in known.items() if value}
            row = ["alloc", num_allocs, entry["size"], maker.op]
            rows.append([*row, facts] if facts else row)
        elif entry["action"] == "free_completed":
            _place(waiting, rows, num_allocs, num_frees)
            num_frees += 1
            if address in alive:
                rows.append(["free", alive.pop(address)])
    _place(waiting, rows, num_allocs)
    return rows


def _place(
    waiting: list[Mark], rows: list[Row], num_allocs: int, num_frees: float = math.inf
) -> None:
    while waiting and waiting[-1].num_allocs <= num_allocs and waiting[-1].num_frees <= num_frees:
        rows.append(waiting.pop().row)


def makers_by_address(roots: Iterable[Any], device: torch.device) -> dict[int, list[Maker]]:
    """The operators that made the allocations at each address, in order, from the profiler's tree
    of events.

    As in a simulation, that is the outermost operator with a kernel of its own: aten::clone, not
    the aten::reshape around it, nor the aten::empty_strided inside.
    """
    found: dict[int, list[tuple[int, Maker]]] = defaultdict(list)
    todo: list[tuple[Any, Maker]] = [(root, Maker()) for root in roots]
    while todo:
        event, maker = todo.pop()
        if event.name == "[memory]":
            facts = event.extra_fields
            if facts.alloc_size > 0 and facts.device == device:
                found[facts.ptr].append((event.start_time_ns, maker))
            continue
        todo += [(child, _inside(event, maker)) for child in event.children]
    return {
        address: [maker for _, maker in sorted(made, key=itemgetter(0))]
        for address, made in found.items()
    }


def _inside(event: Any, maker: Maker) -> Maker:
    name = event.name
    if name.startswith(ENGINE):
        return maker._replace(node=name.removeprefix(ENGINE))
    if maker.op or not OPERATOR.fullmatch(name) or is_composite(name, event.overload_name):
        return maker
    return maker._replace(op=name)


@cache
def is_composite(name: str, overload: str) -> bool:
    """Whether an operator on CUDA only calls others, which are the ones that a simulation sees.

    This is also true of a range that the user has named. Where the profiler does not tell the
    overload, all overloads must.
    """
    overloads = {schema.overload_name for schema in torch._C._jit_get_schemas_for_operator(name)}
    asked = {overload} if overload in overloads else overloads
    return all(_only_calls_others(f"{name}.{each}" if each else name) for each in asked)


def _only_calls_others(name: str) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CUDA")
    except RuntimeError:  # only TorchScript knows it
        return True


def source_of(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost line of the user's own code. "" where there is none."""
    for frame in frames:
        if not frame["filename"].startswith(HIDDEN):
            return Location(frame["filename"], frame["line"], frame["name"]).source
    return ""
