"""What a run of the driver counts, and the page that is made of it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
    has_ended: bool = False  # not stopped before

    def save(self) -> None:
        """Often: what was found is kept when the driver is stopped."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    def note(self, what: str, case: str, faults: dict[str, str], exit_code: int | None) -> None:
        self.tried[what] += 1
        if self.tried.total() % 100 == 0:
            print(f"{self.title}: {self.tried.total():,} tried", flush=True)
        if self.tried.total() % 10 == 0:
            self.save()
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


def made_now(seed: int) -> str:
    return f"seed {seed}, {datetime.now(UTC):%d %B %Y}, {_machine()}"


def read(path: Path) -> Part:
    data = json.loads(path.read_text())
    del data["num_tried"]
    return Part(
        **{**data, "file": path, "tried": Counter(data["tried"]), "exits": Counter(data["exits"])}
    )
