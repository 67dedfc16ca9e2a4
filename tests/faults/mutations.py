"""Every field of every kind of record edited, and what each reader makes of it."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sandbox

REPORT = ["report {} -o -", "report {} --format md -o -", "report {} --format terminal"]
BENCH, TUNE, ACCURACY = map(" ".join, (sandbox.BENCH, sandbox.TUNE, sandbox.ACCURACY))
CONFIG = "probe work.py:good --device cpu --steps 1 --warmup 0 --out new --config {}"
# Which commands read a file; {} is the file. The first pattern that fits a file holds.
READERS: dict[str, list[str]] = {
    r"a/trace\.json": ["diff a b", "diff b a", *REPORT],
    r"h200/metrics\.json": [*REPORT, "fit h200 runs.csv", "fit h200 runs.csv --by batch_size"],
    r"probe/metrics\.json": [*REPORT, "report probe -o -", "fit probe"],
    r"bench/.*/trial\.json": ["compare bench", "report bench -o -", BENCH],
    r"bench/.*/result\.json": ["compare bench", "report bench --format md", BENCH],
    r"bench/.*/steps\.jsonl": [BENCH],
    r"tune/request\.json": [TUNE],
    r"tune/records\.jsonl": [TUNE],
    r"tune/result\.json": [*REPORT, "report tune -o -", TUNE],
    r"tune/final\.json|config\.json": [CONFIG],
    r"accuracy/rows\.jsonl": [*REPORT, ACCURACY],
    r"cache/calibration/.*\.json": ["predict work.py:good --gpu h200"],
    r"tiny\.toml": [BENCH],
    r"runs\.csv": ["fit runs.csv", "fit runs.csv --by batch_size --json"],
    r"probe/env\.json": ["report probe -o -"],
    r"plan/plan\.json|[a-z-]+\.json": REPORT,
}
# A result that is there is not read again step by step.
WITHOUT_RESULT = re.compile(r"bench/.*/steps\.jsonl")
DEEP = "[" * 3000 + "]" * 3000
MISSING = object()
VALUES: list[Any] = [
    MISSING,
    None,
    True,
    0,
    -1,
    1,
    10**12,
    2**63,
    10**30,
    1e308,
    -1e308,
    1e-320,
    0.5,
    "",
    "x",
    "nan",
    "1e400",
    "\x1b[31mred\x1b[0m\x07",
    "<script>alert(1)</script>",
    "[bold]",
    "é漢字\u202e",
    "\ud800",
    "x" * 10_000,
    "../../../etc/passwd",
    [],
    [None],
    [[]],
    [0] * 1000,
    {},
    {"": None},
    {"x": {"x": {"x": 1}}},
    json.loads("[" * 500 + "]" * 500),
]
TEXTS = ["", "x", "-1", "0", "nan", "inf", "1e308", "9" * 5000, '"', "[", "\x1b[31m", "é", "\x00"]
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutation:
    file: str
    what: str
    data: bytes
    reader: str


def mutations(folder: Path, seed: int, values_each: int) -> Iterator[Mutation]:
    """For every field and reader, some of the values."""
    draw = random.Random(seed)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        readers = next((READERS[key] for key in READERS if re.fullmatch(key, name)), None)
        if readers is None or not path.is_file():
            continue
        for reader in readers:
            # a report of each kind of record is made in three formats
            number = values_each // 2 or 1 if reader in REPORT else values_each
            # it simulates a model each time; the same records are read for a report
            number = 0 if reader == ACCURACY else number
            for what, data in _edited(path, draw, number):
                yield Mutation(name, what, data, reader.replace("{}", name))


def _edited(path: Path, draw: random.Random, number: int) -> Iterator[tuple[str, bytes]]:
    data = path.read_bytes()
    yield from _damaged(data, draw)
    if path.suffix == ".json":
        value = json.loads(data)
        for field in fields(value):
            for new in draw.sample(VALUES, number):
                yield _said(field, new), _encoded(edited(value, field, new))
    elif path.suffix == ".jsonl":
        lines = data.splitlines()
        for at, line in enumerate(lines):
            value = json.loads(line)
            for field in fields(value):
                for new in draw.sample(VALUES, (number + 1) // 2):
                    changed = [*lines[:at], _encoded(edited(value, field, new)), *lines[at + 1 :]]
                    yield f"line {at}, {_said(field, new)}", b"\n".join(changed) + b"\n"
    else:
        for found in re.finditer(rb"[^\s,=]+", data):
            for new_text in draw.sample(TEXTS, number):
                changed_text = data[: found.start()] + new_text.encode() + data[found.end() :]
                yield f"{found[0]!r} is {new_text[:30]!r}", changed_text


def _damaged(data: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """What disks and editors do to a whole file."""
    yield "empty", b""
    yield "null", b"null"
    yield "not text", b"\xff\xfe\x00" + data
    yield "deep", DEEP.encode()
    yield "deeper", b"[" * 200_000
    yield "a number without an end", b"9" * 100_000
    yield "NaN", re.sub(rb": *-?[0-9.e+-]+", b": NaN", data, count=draw.randrange(1, 5))
    yield "twice", data + data
    for _ in range(4):
        cut = draw.randrange(len(data))
        yield f"cut at {cut}", data[:cut]
        at = draw.randrange(len(data))
        yield f"byte {at} flipped", data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def fields(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every field; of a list the first and the last entry, of a large object the first names."""
    if path:
        yield path
    if isinstance(value, dict):
        for name in list(value)[:40]:
            yield from fields(value[name], (*path, name))
    elif isinstance(value, list):
        for at in sorted({0, len(value) - 1}) if value else ():
            yield from fields(value[at], (*path, at))


def edited(data: Any, path: Path_, value: Any) -> Any:
    changed, name = copy.copy(data), path[0]
    if len(path) > 1:
        changed[name] = edited(data[name], path[1:], value)
    elif value is MISSING:
        del changed[name]
    else:
        changed[name] = value
    return changed


def _said(field: Path_, value: Any) -> str:
    shown = "missing" if value is MISSING else repr(value)[:40]
    return f"{'.'.join(map(str, field))} is {shown}"


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
