"""`vramcast.fit`: a law for memory from measured runs: folders of `vramcast probe`, or tables."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
TABLE_ADVICE = "Give a CSV file with a header line and a line for every run."


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
    paths = [Path(run) for run in runs]
    if twice := _first_twice([os.path.realpath(path) for path in paths]):
        # Otherwise it would be predicted from its own copy when it is left out.
        raise UsageError(f"{twice} is given twice.", "Give every run once.")
    points = [point for path in paths for point in read_points(path)]
    if by is not None:
        known = {name for point in points for name in point.knobs}
        if by not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(f"--by {by!r} is not a knob of these runs.", f"Knobs: {listed}.")
        points = [replace(point, group=str(point.knobs.get(by, ""))) for point in points]
    return fit_points(points, _terms(terms, own_terms or {}))


def _first_twice(values: Sequence[Any]) -> Any:
    return next((value for i, value in enumerate(values) if value in values[:i]), None)


def _terms(names: str | Sequence[str] | None, mine: Mapping[str, str]) -> dict[str, str] | None:
    if names is None and not mine:
        return None
    if names is None:
        names = ["constant", *mine]
    wanted = names.split(",") if isinstance(names, str) else list(names)
    for name in mine:
        if name in TERMS:
            raise UsageError(
                f"--term {name}: there is a term of that name already, {TERMS[name]!r}.",
                "Give yours another name.",
            )
        if name not in wanted:
            raise UsageError(
                f"--term {name} is given, but --terms does not name it.",
                f"Add it: --terms {','.join([*wanted, name])}.",
            )
    known = {**TERMS, **mine}
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"There is no term {name!r}.",
                f"Terms: {', '.join(TERMS)}, or your own with --term name=expression.",
            )
    if twice := _first_twice(wanted):
        raise UsageError(f"The term {twice!r} is named twice.", "Name every term once.")
    return {name: known[name] for name in wanted}


def read_points(path: Path) -> list[Point]:
    if path.suffix == ".csv":
        return _from_table(path)
    m = read_measurement(path)
    if m.outcome == "ok" and (m.peak_allocated_bytes is None or m.peak_reserved_bytes is None):
        raise UsageError(
            f"{path} measured no GPU memory (it ran on the {m.device}).",
            "Fit runs that were made on a GPU.",
        )
    return [
        Point(
            name=path.name,
            knobs=m.knobs,
            allocated_bytes=m.peak_allocated_bytes or 0,
            reserved_bytes=m.peak_reserved_bytes or 0,
            outcome=m.outcome,
            capacity_bytes=m.capacity_bytes,
        )
    ]


def _from_table(path: Path) -> list[Point]:
    """The runs of a CSV file with the columns name, group, knobs, and sizes such as reserved_gib.
    Instead of the allocated size it may have the overhead: what is reserved beyond it."""
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except csv.Error as problem:
        raise UsageError(f"{path} cannot be read: {problem}.", TABLE_ADVICE) from None
    if not rows:
        raise UsageError(f"{path} holds no rows.", TABLE_ADVICE)
    return [_point(path, number, row) for number, row in enumerate(rows, 2)]


def _point(path: Path, line: int, row: dict[str, Any]) -> Point:
    try:
        knobs = {
            key: _number(key, value)
            for key, value in row.items()
            if value not in (None, "") and key not in ("name", "group", "outcome")
        }
        sizes = {
            quantity: round(knobs.pop(quantity + unit) * scale)
            for quantity in QUANTITIES
            for unit, scale in UNITS.items()
            if quantity + unit in knobs
        }
        return Point(
            name=row.get("name") or f"line {line}",
            knobs=knobs,
            allocated_bytes=sizes["allocated"]
            if "allocated" in sizes
            else sizes["reserved"] - sizes["overhead"],
            reserved_bytes=sizes["reserved"],
            outcome=row.get("outcome") or "ok",
            capacity_bytes=sizes.get("capacity"),
            group=row.get("group") or "",
        )
    except (KeyError, ValueError, TypeError, OverflowError) as problem:
        raise UsageError(
            f"{path}, line {line} has no usable numbers: {problem}.",
            "Columns: name, group, knobs, reserved_gib, and allocated_gib or overhead_mib.",
        ) from None


def _number(name: str, text: Any) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    return value
