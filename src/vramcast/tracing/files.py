"""trace.json: every allocation and free of a run, the same for a simulated and a measured one.
Plain JSON; reading it runs no code.

One object: version, kind ("trace"), source ("predicted" or "measured"), workload, knobs, gpu,
torch_version, allocator_settings, and events, one row a line:

    ["alloc", id, bytes, op]            id counts allocations from 1; bytes as requested; op such as
    "aten::addmm", "" when unknown ["alloc", id, bytes, op, facts]     facts: any of FACTS that are
    known, as strings ["free", id] ["step", number]                    a training step begins; what
    comes before the first is the build ["empty_cache"]

Beside it lies snapshot.pickle, which https://pytorch.org/memory_viz opens. vramcast writes that
file and never reads it.

Versions
    1   the first
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.errors import UsageError
from vramcast.records.store import read_text, write_atomically
from vramcast.tracing.trace import FACTS, Allocation, Trace

VERSION = 1
TRACE_NAME = "trace.json"
SNAPSHOT_NAME = "snapshot.pickle"
SOURCES = ("predicted", "measured")
# memory_viz reads pickles in the browser, by a reader of its own that stops at protocol 4
PICKLE_PROTOCOL = 4
GIVE_TRACE = f"Give a {TRACE_NAME}, or a folder with one: vramcast predict --trace DIR writes it."
MAKE_AGAIN = "Make it again with vramcast predict --trace DIR or vramcast probe --trace."


_TYPES: dict[str, tuple[type, ...]] = {
    "workload": (str,),
    "knobs": (dict,),
    "gpu": (str, type(None)),
    "torch_version": (str,),
    "allocator_settings": (str,),
}


def from_rows(
    rows: Sequence[Any],
    *,
    source: str,
    workload: str,
    knobs: Mapping[str, Any],
    gpu: str | None,
    torch_version: str,
    allocator_settings: str,
) -> Trace:
    """A trace from the rows of its file; a row that cannot be is refused by its number."""
    events, allocations, steps = _read_rows(rows)
    return Trace(
        source=source,
        workload=workload,
        knobs=knobs,
        gpu=gpu,
        torch_version=torch_version,
        allocator_settings=allocator_settings,
        events=events,
        allocations=allocations,
        steps=steps,
    )


def to_rows(trace: Trace) -> list[list[Any]]:
    steps = iter(trace.steps)
    return [_row(event, trace.allocations, steps) for event in trace.events]


def to_json(trace: Trace) -> str:
    """One event a line, so that grep and plain diff work on it too."""
    head = {
        "version": VERSION,
        "kind": "trace",
        "source": trace.source,
        "workload": trace.workload,
        "knobs": trace.knobs,
        "gpu": trace.gpu,
        "torch_version": trace.torch_version,
        "allocator_settings": trace.allocator_settings,
    }
    rows = ",\n".join(map(json.dumps, to_rows(trace)))
    return f'{json.dumps(head)[:-1]}, "events": [\n{rows}\n]}}\n'


def from_json(text: str, what: str = "This text") -> Trace:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"{what} is not whole JSON ({problem}): it was cut off, or is something else.",
            MAKE_AGAIN,
        ) from None
    if not isinstance(data, dict) or data.get("kind") != "trace":
        raise UsageError(f"{what} is not a memory trace of vramcast.", GIVE_TRACE)
    if data.get("version") != VERSION:
        raise UsageError(
            f"{what} has version {data.get('version')!r}; this vramcast reads version {VERSION}.",
            MAKE_AGAIN,
        )
    if data.get("source") not in SOURCES:
        raise UsageError(
            f"{what} has the source {data.get('source')!r}; known are {' and '.join(SOURCES)}.",
            MAKE_AGAIN,
        )
    for field, types in _TYPES.items():
        if field not in data or not isinstance(data[field], types):
            raise UsageError(f"{what} has no valid {field}.", MAKE_AGAIN)
    if not isinstance(data.get("events"), list):
        raise UsageError(f"{what} has no list of events.", MAKE_AGAIN)
    try:
        return from_rows(
            data["events"], source=data["source"], **{field: data[field] for field in _TYPES}
        )
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", error.advice) from None


def read_trace(path: Path) -> Trace:
    """From trace.json itself or from the folder that holds it."""
    file = path / TRACE_NAME if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"There is no {file}.", GIVE_TRACE)
    return from_json(read_text(file), str(file))


def check_free(folder: Path, *, force: bool) -> None:
    """Raises where writing would destroy something: asked before the work begins, and again before
    it is kept."""
    for above in (folder, *folder.parents):
        if above.exists() and not above.is_dir():
            raise UsageError(
                f"{above} is a file, not a folder.",
                "Give --trace a folder; it is made if it does not exist.",
            )
    there = [name for name in (TRACE_NAME, SNAPSHOT_NAME) if (folder / name).exists()]
    if there and not force:
        raise UsageError(
            f"{folder} already has {' and '.join(there)}.",
            "Choose another folder for --trace, or --force to write over it.",
        )


def write_files(
    folder: Path, trace: Trace, snapshot: Mapping[str, Any], *, force: bool = False
) -> None:
    """Both files, each whole or not there; the trace last, so that where it is the snapshot is
    too."""
    check_free(folder, force=force)
    write_atomically(folder / SNAPSHOT_NAME, pickle.dumps(snapshot, protocol=PICKLE_PROTOCOL))
    write_atomically(folder / TRACE_NAME, to_json(trace))


def _row(event: int, allocations: Sequence[Allocation], steps: Any) -> list[Any]:
    if event > 0:
        allocation = allocations[event - 1]
        facts = [allocation.facts] if allocation.facts else []
        return ["alloc", event, allocation.num_bytes, allocation.op, *facts]
    if event == 0:
        return ["step", next(steps)]
    return ["empty_cache"] if event == EMPTY_CACHE else ["free", -event]


def _read_rows(rows: Sequence[Any]) -> tuple[list[int], list[Allocation], list[int]]:
    events: list[int] = []
    allocations: list[Allocation] = []
    steps: list[int] = []
    alive: set[int] = set()
    for number, row in enumerate(rows, 1):
        match row:
            case ["alloc", int(identity), int(num_bytes), str(op), *rest] if (
                identity == len(allocations) + 1 and num_bytes >= 0
            ):
                _whole(identity, num_bytes, number=number, row=row)
                allocations.append(Allocation(num_bytes, op, **_facts(rest, number, row)))
                alive.add(identity)
                events.append(identity)
            case ["free", int(identity)] if identity in alive:
                _whole(identity, number=number, row=row)
                alive.remove(identity)
                events.append(-identity)
            case ["step", int(step)]:
                _whole(step, number=number, row=row)
                steps.append(step)
                events.append(0)
            case ["empty_cache"]:
                events.append(EMPTY_CACHE)
            case _:
                _refuse(number, row)
    return events, allocations, steps


def _whole(*values: int, number: int, row: Any) -> None:
    """true counts as 1 in Python; in a trace it is a mistake."""
    if any(isinstance(value, bool) for value in values):
        _refuse(number, row)


def _facts(rest: list[Any], number: int, row: Any) -> dict[str, Any]:
    """Facts a later vramcast adds are passed over; those known here must be text."""
    if not rest:
        return {}
    if len(rest) > 1 or not isinstance(rest[0], dict):
        _refuse(number, row)
    facts = {name: rest[0][name] for name in FACTS if name in rest[0]}
    if not all(isinstance(value, str) for value in facts.values()):
        _refuse(number, row)
    return facts


def _refuse(number: int, row: Any) -> NoReturn:
    shown = repr(row)
    raise UsageError(
        f"event {number} cannot be: {shown if len(shown) <= 120 else shown[:117] + '...'}.",
        MAKE_AGAIN,
    )
