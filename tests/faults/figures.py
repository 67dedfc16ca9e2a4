"""What a run of the driver counts, and the page that is made of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

Case = TypeVar("Case")
TITLES = {
    "invocations": "wrong invocations",
    "records": "edited records",
    "kills": "killed at random moments",
    "server": "server killed",
    "writes": "failing writes",
    "files": "special files",
}
SAVE_SECONDS = 5.0
ROOT = Path(__file__).parents[2]
# In the order of the page.
KINDS = (
    "tracebacks",
    "undocumented exit codes",
    "hangs",
    "half-written or lost records",
    "orphans",
    "files left",
    "control characters printed",
    "messages without an end",
    "failures without a message",
)


@dataclass
class Part:
    """One kind of attack."""

    title: str
    file: Path
    tried: Counter[str] = field(default_factory=Counter)  # by command or file
    faults: list[dict[str, str]] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    made: str = ""  # seed, date and machine
    source: str = ""  # what was attacked, and with what: figures of another one are not added to
    num_done: int = 0  # cases, in their order
    has_ended: bool = False  # not stopped before

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        fresh.replace(self.file)

    def left(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Those that an earlier run has not done. What was found in the others is kept when this
        one is stopped: it is saved every few seconds, between two cases."""
        if isinstance(cases, Sized):
            print(f"{self.title}: {self.num_done:,} of {len(cases):,} are done", flush=True)
        started, before, saved = time.monotonic(), self.seconds, 0.0
        for case in itertools.islice(cases, self.num_done, None):
            yield case
            self.num_done += 1
            self.seconds = before + time.monotonic() - started
            if self.seconds - saved > SAVE_SECONDS:
                self.save()
                saved = self.seconds

    def note(self, what: str, case: str, faults: dict[str, str], exit_code: int | None) -> None:
        self.tried[what] += 1
        if self.tried.total() % 100 == 0:
            print(f"{self.title}: {self.tried.total():,} tried", flush=True)
        self.exits[str(exit_code)] += 1
        for kind, details in faults.items():
            assert kind in KINDS, kind
            self.faults.append({"kind": kind, "case": case, "details": details})
            print(f"{kind}: {case!r}: {details}", file=sys.stderr, flush=True)

    def count(self, kind: str) -> int:
        return sum(fault["kind"] == kind for fault in self.faults)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "file": str(self.file), "num_tried": self.tried.total()}


def page(parts: list[Part], command: str) -> str:
    """The figures as a table, with date, machine and command."""
    made = sorted({part.made for part in parts})
    lines = [
        *(f"`{command}`, {one}." for one in made),
        "",
        "| | " + " | ".join(part.title for part in parts) + " |",
        "|---|" + "---:|" * len(parts),
        _row("tried", [part.tried.total() for part in parts]),
        "| all of it | " + " | ".join(part.has_ended * "yes" or "stopped" for part in parts) + " |",
        *(_row(kind, [part.count(kind) for part in parts]) for kind in KINDS),
        "",
        "How often each was tried:",
        "",
        *(f"- {part.title}: {_listed(part.tried)}." for part in parts),
        "",
    ]
    found = [(part.title, fault) for part in parts for fault in part.faults]
    if found:
        lines += ["What this run found:", ""]
        kinds = Counter((title, fault["kind"], _short(fault)) for title, fault in found)
        lines += [
            f"- {title}, {kind}{f' ({number} times)' if number > 1 else ''}: `{text}`"
            for (title, kind, text), number in kinds.items()
        ]
        lines += [""]
    return "\n".join(lines)


def _row(name: str, numbers: list[int]) -> str:
    return f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common())


def _short(fault: dict[str, str]) -> str:
    text = " ".join(fault["case"].split()).encode("ascii", "backslashreplace").decode()
    text = "".join(char if char.isprintable() and char not in "`|" else "?" for char in text)
    return text[:100]


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores of {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def source_now(seed: int) -> str:
    digest = hashlib.sha256(str(seed).encode())
    for folder in ("src", "tests/faults"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".h", ".cpp", ".c", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def made_now(seed: int) -> str:
    return f"seed {seed}, {datetime.now(UTC):%d %B %Y}, {_machine()}"


def begin(path: Path, seed: int) -> Part:
    """What an earlier run has left of the same attack on the same vramcast, or a new part."""
    source = source_now(seed)
    if path.exists():
        found = read(path)
        if found.source == source:
            return found
    return Part(TITLES[path.stem], path, made=made_now(seed), source=source)


def read(path: Path) -> Part:
    data = json.loads(path.read_text())
    del data["num_tried"]
    return Part(
        **{**data, "file": path, "tried": Counter(data["tried"]), "exits": Counter(data["exits"])}
    )
