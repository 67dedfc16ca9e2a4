"""`vramcast zoo`: the models by name, and the size that meets a budget of parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vramcast.errors import UsageError
from vramcast.units import parse_model_size
from vramcast.workload.knobs import split_assignments
from vramcast_zoo.catalogue import BY_NAME, DOCUMENTS, ENTRIES, Entry, find_named
from vramcast_zoo.sizing import FAMILIES, Size, solve

UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
FAR_OFF = 0.1  # of the budget


def run(
    family: str | None,
    assignments: list[str],
    options: Mapping[str, int | None],
    params: str | None,
    as_json: bool,
) -> None:
    sizes: dict[str, Size] = {
        name: parse_model_size(name, text) for name, text in split_assignments(assignments).items()
    }
    sizes |= {name: value for name, value in options.items() if value is not None}
    if params is None:
        if sizes:
            raise UsageError(
                "Sizes are given but no budget.", "Add --params, for example --params 50M."
            )
        _list(
            [entry for entry in ENTRIES if family is None or entry.family == _known(family)],
            as_json,
        )
    elif family is None:
        raise UsageError(
            "--params needs a family.",
            f"Name one of {', '.join(FAMILIES)}, as in: vramcast zoo e5 --params 50M.",
        )
    else:
        _solve(_known(family), parse_count(params), sizes, as_json)


def parse_count(text: str) -> int:
    """As in "50M", "1.36B" or "390,974,976"."""
    match = re.fullmatch(
        r"([0-9]+(?:\.[0-9]+)?)([kmb]?)", text.strip().lower().replace(",", "").replace("_", "")
    )
    count = round(float(match[1]) * UNITS[match[2]]) if match else 0
    if not 0 < count <= 10**15:
        raise UsageError(
            f"not a number of parameters: {text!r}",
            "Write for example --params 50M, 1.36B or 390974976.",
        )
    return count


def _known(family: str) -> str:
    if family in BY_NAME:
        raise UsageError(
            f"{family!r} is one model, not a family.",
            f"See all of its family with: vramcast zoo {BY_NAME[family].family}",
        )
    if family not in FAMILIES:
        raise UsageError(f"There is no family {family!r}.", f"Families: {', '.join(FAMILIES)}.")
    return family


def _list(entries: list[Entry], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_object(entry) for entry in entries]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "parameters", "family", "document", "sizes"):
        table.add_column(
            column, no_wrap=True, justify="right" if column == "parameters" else "left"
        )
    for entry in entries:
        sizes = " ".join(f"{name}={value}" for name, value in entry.sizes.items())
        table.add_row(
            entry.name, f"{entry.parameters:,}", entry.family, entry.document or "baseline", sizes
        )
    Console().print(table)
    print(
        "\nPredict one:  vramcast predict NAME batch_size=8 --gpu h200\nFind a size:  vramcast zoo e5 --params 50M --dim 1536"
    )


def _as_object(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "family": entry.family,
        "num_parameters": entry.parameters,
        "sizes": entry.all_sizes,
        "document": entry.document,
        "document_title": DOCUMENTS[entry.document] if entry.document else None,
    }


def _solve(family: str, wanted: int, given: Mapping[str, Size], as_json: bool) -> None:
    try:
        nearest = solve(FAMILIES[family], wanted, given)
        named = find_named(family, wanted, given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    sizes, parameters = (
        (named.all_sizes, named.parameters) if named else (nearest.sizes, nearest.parameters)
    )
    free = nearest.free
    if as_json:
        found: dict[str, Any] = {
            "family": family,
            "name": named.name if named else None,
            "free": free,
            free: sizes[free],
            "sizes": sizes,
        }
        found |= {"num_parameters": parameters, "wanted_parameters": wanted}
        found["nearest"] = {free: nearest.sizes[free], "num_parameters": nearest.parameters}
        print(json.dumps(found))
        return
    print(
        f"{free} {sizes[free]}: {parameters:,} parameters ({parameters / wanted - 1:+.2%} of {wanted:,})"
    )
    if abs(parameters / wanted - 1) > FAR_OFF:
        print(
            f"The budget is missed: with the other sizes as they are, no {free} comes nearer. Give another size."
        )
    if named and sizes[free] != nearest.sizes[free]:
        where = DOCUMENTS[named.document] if named.document else "a baseline"
        print(
            f"This is {named.name} ({where}). Nearest to the budget is {free} {nearest.sizes[free]}: {nearest.parameters:,}"
        )
    command = (
        named.name
        if named
        else f"vramcast_zoo.{family}:build "
        + " ".join(f"{name}={value}" for name, value in sizes.items())
    )
    print(f"vramcast predict {command}")
