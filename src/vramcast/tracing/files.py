"""trace.json: every allocation and free of a run, simulated or measured. Reading it runs no code.

One object: version, kind, the fields of TraceHead, and events, one row a line:

    ["alloc", id, bytes, op]          id counts from 1; bytes as requested; op "" when unknown
    ["alloc", id, bytes, op, facts]   facts: those of FACTS that are known
    ["free", id]
    ["step", number]                  a step begins; before the first is the build
    ["empty_cache"]
"""

import contextlib
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from vramcast.allocator.replay import EMPTY_CACHE
from vramcast.errors import UsageError
from vramcast.records.base import MAKE_AGAIN, Bytes, Record, shortened, typed
from vramcast.records.store import opened, read_text, write_atomically
from vramcast.tracing.lines import OtherForm, read_events
from vramcast.tracing.trace import Allocation, Allocations, Trace, TraceHead

TRACE_NAME = "trace.json"
SNAPSHOT_NAME = "snapshot.pickle"
# memory_viz's own reader of pickles stops at protocol 4
PICKLE_PROTOCOL = 4
# The end of the first line of a file that vramcast wrote.
BEFORE_EVENTS = b'"events": [\n'
MAX_HEAD_BYTES = 1 << 20
GIVE_TRACE = f"Give a {TRACE_NAME}, or a folder with one: vramcast predict --trace DIR writes it."


class TraceFile(Record, TraceHead, kind="trace"):
    events: list[Any]


def from_rows(rows: Sequence[Any], **head: Any) -> Trace:
    """The trace of these rows. An impossible row is refused by its number."""
    allocations: list[Allocation] = []
    events, steps, alive = [], [], set()
    for number, row in enumerate(rows, 1):
        match _converted(row):
            case _Alloc(identity, num_bytes, op, facts) if identity == len(allocations) + 1:
                allocations.append(Allocation(num_bytes, op, **asdict(facts)))
                alive.add(identity)
                events.append(identity)
            case _Free(identity) if identity in alive:
                alive.remove(identity)
                events.append(-identity)
            case _Step(step):
                steps.append(step)
                events.append(0)
            case _EmptyCache():
                events.append(EMPTY_CACHE)
            case _:
                raise UsageError(f"event {number} cannot be: {shortened(row)}.", MAKE_AGAIN)
    return Trace(
        events=np.array(events, np.int64),
        allocations=Allocations.of(allocations),
        steps=steps,
        **head,
    )


def to_json(trace: Trace) -> str:
    """The file's text, with one event a line, so that grep and plain diff work too."""
    head = {"version": TraceFile.VERSION, "kind": TraceFile.KIND}
    head |= {field.name: getattr(trace, field.name) for field in fields(TraceHead)}
    rows = ",\n".join(_lines(trace))
    return f'{json.dumps(head)[:-1]}, "events": [\n{rows}\n]}}\n'


def from_json(text: str, what: str = "This text") -> Trace:
    head = dict(vars(TraceFile.from_json(text, what)))
    try:
        return from_rows(head.pop("events"), **head)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", error.advice) from None


def read_trace(path: Path) -> Trace:
    file = path / TRACE_NAME if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"There is no file {file}.", GIVE_TRACE)
    with opened(file) as lines:
        first_line = lines.readline(MAX_HEAD_BYTES)
        if first_line.endswith(BEFORE_EVENTS):
            with contextlib.suppress(OtherForm):
                found = read_events(lines, _described)
                head = dict(vars(TraceFile.from_json(first_line + b"]}", str(file))))
                return Trace(**{**head, **found._asdict()})
    return from_json(read_text(file), str(file))


def begins_as_trace(path: Path) -> bool:
    """Whether vramcast wrote this as a trace. Only its first line is read, because it may be
    long."""
    with opened(path) as lines:
        first_line = lines.readline(MAX_HEAD_BYTES)
    return (
        first_line.endswith(BEFORE_EVENTS) and f'"kind": "{TraceFile.KIND}"'.encode() in first_line
    )


def check_free(folder: Path, *, force: bool) -> None:
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
    """Writes both files, the trace last: where it exists, the snapshot does too."""
    check_free(folder, force=force)
    write_atomically(folder / SNAPSHOT_NAME, pickle.dumps(snapshot, protocol=PICKLE_PROTOCOL))
    write_atomically(folder / TRACE_NAME, to_json(trace))


def _lines(trace: Trace) -> Iterator[str]:
    steps = iter(trace.steps)
    descriptions = [*map(_description, trace.allocations.descriptions)]
    description = trace.allocations.description.tolist()
    sizes = trace.sizes.tolist()
    for event in trace.events.tolist():
        if event > 0:
            after = descriptions[description[event - 1]]
            yield f'["alloc", {event}, {sizes[event - 1]}, {after}]'
        elif event == 0:
            yield f'["step", {next(steps)}]'
        else:
            yield '["empty_cache"]' if event == EMPTY_CACHE else f'["free", {-event}]'


def _description(allocation: Allocation) -> str:
    """The part of a line after the bytes."""
    facts: dict[str, Any] = {**allocation.facts}
    if allocation.stream:
        facts["stream"] = allocation.stream
    return ", ".join(map(json.dumps, (allocation.op, facts) if facts else (allocation.op,)))


def _described(text: bytes) -> Allocation:
    row = typed(msgspec.json.decode(b'["alloc", 0, 0, ' + text + b"]"), _Alloc)
    return Allocation(0, row.op, **asdict(row.facts))


class _Facts(Struct, frozen=True):
    """The known facts. Others, of a later vramcast, are ignored."""

    category: str = ""
    name: str = ""
    module: str = ""
    node: str = ""
    source: str = ""
    stream: int = 0


class _Row(Struct, array_like=True, forbid_unknown_fields=True):
    """A row is a list that begins with its tag."""


class _Alloc(_Row, tag="alloc"):
    identity: int
    num_bytes: Bytes
    op: str
    facts: _Facts = _Facts()


class _Free(_Row, tag="free"):
    identity: int


class _Step(_Row, tag="step"):
    number: int


class _EmptyCache(_Row, tag="empty_cache"):
    pass


def _converted(row: Any) -> _Row | None:
    try:
        found: _Row = typed(row, _Alloc | _Free | _Step | _EmptyCache)
        return found
    except msgspec.ValidationError:
        return None
