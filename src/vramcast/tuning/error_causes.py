"""From the text of an error to its likely cause (error_causes.toml) and the memory it lacked."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("error_causes.toml")
_SIZE = r"([0-9.]+) (bytes|[kmgt]ib)"
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@cache
def causes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["cause"]
    return found


def likely_cause(error: str | None) -> str:
    """Empty if nothing is recognised. A traceback's indented lines of code are not searched."""
    text = re.sub(r"^  .*\n?", "", error or "", flags=re.MULTILINE).lower()
    for one in causes():
        if any(re.search(pattern, text, re.DOTALL) for pattern in one["patterns"]):
            return str(one["cause"])
    return ""


def missing_bytes_of(error: str | None) -> int | None:
    """What an out-of-memory error asked for, less what the GPU or the limit still had."""
    asked = _bytes(rf"tried to allocate {_SIZE}", error)
    free = _bytes(rf"of which {_SIZE} is free", error)
    if asked is None or free is None:
        return asked
    allowed = _bytes(rf"{_SIZE} allowed;", error)
    if allowed is not None:
        allocated = _bytes(rf"{_SIZE} is allocated by pytorch", error) or 0
        cached = _bytes(rf"{_SIZE} is reserved by pytorch", error) or 0
        free = min(free, allowed - allocated - cached)
    return max(1, asked - max(0, free))


def _bytes(pattern: str, error: str | None) -> int | None:
    match = re.search(pattern, error or "", re.IGNORECASE)
    return round(float(match[1]) * _UNITS[match[2].lower()]) if match else None
