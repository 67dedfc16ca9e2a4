"""`vramcast.fit`: a law for memory from measured runs: folders of `vramcast probe`, or tables."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.forecast.laws import TERMS, Point
from vramcast.forecast.laws import fit as fit_points
from vramcast.probing.run_folder import read_measurement
from vramcast.records.fit import MemoryFit
from vramcast.records.store import read_text
from vramcast.units import GiB, MiB

UNITS = {"_bytes": 1, "_mib": MiB, "_gib": GiB}
QUANTITIES = ("allocated", "reserved", "overhead", "capacity")


def fit(
    *runs: str | os.PathLike[str],
    terms: str | Sequence[str] | None = None,
    own_terms: Mapping[str, str] | None = None,
    by: str | None = None,
) -> list[MemoryFit]:
    """A law for memory for each group of runs, with the error each run has when it is left out.

    `fit("runs.csv", own_terms={"ring": "batch_size * seq_len * width * 2"})`. A run is a folder of
    `vramcast probe`, or a line of a CSV table. `terms` names the terms to use, `by` a knob: there
    is a law for each of its values. `law_at(law, {"batch_size": 24})` asks one.
    """
    points = [point for path in _paths(runs) for point in read_points(path, by)]
    if by is not None and not any(by in point.knobs for point in points):
        known = ", ".join(sorted({name for point in points for name in point.knobs})) or "none"
        raise UsageError(f"--by {by!r} is no knob of these runs.", f"Knobs: {known}.")
    return fit_points(points, _terms(terms, own_terms or {}))


def _paths(runs: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """A run that is given twice would be predicted from itself when it is left out."""
    paths = [Path(run) for run in runs]
    places = [path.resolve() for path in paths]
    twice = next((path for i, path in enumerate(paths) if places[i] in places[:i]), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice.", "Give every run once.")
    return paths


def _terms(names: str | Sequence[str] | None, mine: Mapping[str, str]) -> dict[str, str] | None:
    if names is None and not mine:
        return None
    if isinstance(names, str):
        names = names.split(",")
    wanted = list(names) if names is not None else ["constant", *mine]
    _check_terms(wanted, mine)
    unknown = [name for name in wanted if name not in {**TERMS, **mine}]
    if unknown:
        raise UsageError(
            f"There is no term {unknown[0]!r}.",
            f"Terms: {', '.join(TERMS)}, or your own with --term name=expression.",
        )
    return {name: {**TERMS, **mine}[name] for name in wanted}


def _check_terms(wanted: list[str], mine: Mapping[str, str]) -> None:
    taken = next((name for name in mine if name in TERMS), None)
    if taken is not None:
        raise UsageError(
            f"--term {taken}: there is a term of that name already, {TERMS[taken]!r}.",
            "Give yours another name.",
        )
    twice = next((name for i, name in enumerate(wanted) if name in wanted[:i]), None)
    if twice is not None:
        raise UsageError(f"The term {twice!r} is named twice.", "Name every term once.")
    unused = next((name for name in mine if name not in wanted), None)
    if unused is not None:
        raise UsageError(
            f"--term {unused} is given, but --terms does not name it.",
            f"Add it: --terms {','.join([*wanted, unused])}.",
        )


def read_points(path: Path, by: str | None) -> list[Point]:
    if path.suffix == ".csv":
        return _from_table(path, by)
    m = read_measurement(path)
    if m.outcome == "ok" and (m.peak_allocated_bytes is None or m.peak_reserved_bytes is None):
        raise UsageError(
            f"{path} measured no GPU memory (it ran on the {m.device}).",
            "Fit runs that were made on a GPU.",
        )
    point = Point(
        name=path.name,
        knobs=m.knobs,
        allocated_bytes=m.peak_allocated_bytes or 0,
        reserved_bytes=m.peak_reserved_bytes or 0,
        outcome=m.outcome,
        capacity_bytes=m.capacity_bytes,
        group=str(m.knobs.get(by, "")) if by else "",
    )
    return [point]


def _from_table(path: Path, by: str | None) -> list[Point]:
    """From a CSV file with the columns name, group, knobs, and sizes such as reserved_gib.

    Instead of what is allocated it may have the overhead: what is reserved on top of it.
    """
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except csv.Error as problem:
        raise UsageError(
            f"{path} cannot be read: {problem}.", "Give a CSV file with a header line."
        ) from None
    if not rows:
        raise UsageError(
            f"{path} holds no rows.", "Give a CSV file with a header line and a line for every run."
        )
    return [_point(path, number, row, by) for number, row in enumerate(rows, 2)]


def _point(path: Path, line: int, row: dict[str, Any], by: str | None) -> Point:
    try:
        given = {key: value for key, value in row.items() if value not in (None, "")}
        sizes = {
            q: _number(q + u, given[q + u]) * scale
            for q in QUANTITIES
            for u, scale in UNITS.items()
            if q + u in given
        }
        taken = {"name", "group", "outcome", *(q + u for q in QUANTITIES for u in UNITS)}
        knobs = {key: _number(key, value) for key, value in given.items() if key not in taken}
        allocated = (
            sizes["allocated"] if "allocated" in sizes else sizes["reserved"] - sizes["overhead"]
        )
        return Point(
            name=row.get("name") or f"line {line}",
            knobs=knobs,
            allocated_bytes=round(allocated),
            reserved_bytes=round(sizes["reserved"]),
            outcome=row.get("outcome") or "ok",
            capacity_bytes=round(sizes["capacity"]) if "capacity" in sizes else None,
            group=str(knobs.get(by, "")) if by else row.get("group") or "",
        )
    except (KeyError, ValueError, TypeError) as problem:
        raise UsageError(
            f"{path}, line {line} has no usable numbers: {problem}.",
            "Columns: name, group, knobs, reserved_gib, and allocated_gib or overhead_mib.",
        ) from None


def _number(name: str, text: Any) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    return value
