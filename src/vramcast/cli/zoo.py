"""`vramcast zoo`: the models by name, and the size that meets a budget of parameters."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from vramcast.cli import options
from vramcast.cli.command import ExitCode, assignments, command
from vramcast.errors import UsageError
from vramcast.units import parse_count, parse_model_size

if TYPE_CHECKING:
    from vramcast_zoo.catalogue import Entry
    from vramcast_zoo.sizing import Size


@command(
    "zoo",
    question="Which models come with vramcast? Which size has N parameters?",
    examples="""
    vramcast zoo
    vramcast zoo e5 --params 50M --dim 1536
    """,
    then="vramcast predict NAME batch_size=8 --gpu rtx-4090.",
    needs_arguments=False,
)
def zoo(
    family: Annotated[
        str | None, typer.Argument(help="Only this family: e1, e5, e10, mamba2, ...")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Argument(help="Sizes that are given, as key=value.")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="A budget of parameters, for example 50M: find the size that is not given."
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="The same as dim=N.")] = None,
    depth: Annotated[int | None, typer.Option(help="The same as depth=N.")] = None,
    rank: Annotated[int | None, typer.Option(help="The same as rank=N.")] = None,
    as_json: options.Json = False,
) -> int:
    """List the models that come with vramcast, or find the size that meets a budget of parameters.

    Exit codes: 0 done, 2 wrong usage.
    """
    from vramcast_zoo.catalogue import BY_NAME, ENTRIES
    from vramcast_zoo.sizing import FAMILIES

    texts = assignments(sizes)
    named = {"dim": dim, "depth": depth, "rank": rank}
    texts |= {name: str(value) for name, value in named.items() if value is not None}
    given = {name: parse_model_size(name, text) for name, text in texts.items()}
    if params is not None and family is None:
        raise UsageError(
            "--params needs a family.",
            f"Name one of {', '.join(FAMILIES)}, as in: vramcast zoo e5 --params 50M.",
        )
    if params is None and given:
        raise UsageError(
            "Sizes are given but no budget.", "Add --params, for example --params 50M."
        )
    if family in BY_NAME:
        raise UsageError(
            f"{family!r} is one model, not a family.",
            f"See all of its family with: vramcast zoo {BY_NAME[family].family}",
        )
    if family is not None and family not in FAMILIES:
        raise UsageError(f"There is no family {family!r}.", f"Families: {', '.join(FAMILIES)}.")
    if family is not None and params is not None:
        _solve(family, parse_count(params), given, as_json)
    else:
        _list([entry for entry in ENTRIES if family in (None, entry.family)], as_json)
    return ExitCode.DONE


def _list(entries: "list[Entry]", as_json: bool) -> None:
    from vramcast_zoo.catalogue import DOCUMENTS

    if as_json:
        found = [
            {
                "name": entry.name,
                "family": entry.family,
                "num_parameters": entry.parameters,
                "sizes": entry.all_sizes,
                "document": entry.document,
                "document_title": DOCUMENTS[entry.document] if entry.document else None,
            }
            for entry in entries
        ]
        print(json.dumps(found))
        return
    from vramcast.reporting.sections import Cell, Section, knobs_of, table_of
    from vramcast.reporting.showing import show

    columns: dict[str, Cell] = {
        "name": "name",
        "parameters": lambda entry: f"{entry.parameters:,}",
        "family": "family",
        "document": lambda entry: entry.document or "baseline",
        "sizes": lambda entry: knobs_of(entry.sizes),
    }
    table = table_of(entries, columns, left=set(columns) - {"parameters"})
    show([Section(title="Models", parts=[table])])
    print("Predict one:  vramcast predict NAME batch_size=8 --gpu h200")
    print("Find a size:  vramcast zoo e5 --params 50M --dim 1536")


def _solve(family: str, wanted: int, given: "Mapping[str, Size]", as_json: bool) -> None:
    from vramcast_zoo.catalogue import DOCUMENTS, find_named
    from vramcast_zoo.sizing import FAMILIES, solve

    try:
        nearest = solve(FAMILIES[family], wanted, given)
        named = find_named(family, wanted, given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    sizes = named.all_sizes if named else nearest.sizes
    parameters, free = (named or nearest).parameters, nearest.free
    if as_json:
        found = {
            "family": family,
            "name": named.name if named else None,
            "free": free,
            free: sizes[free],
            "sizes": sizes,
            "num_parameters": parameters,
            "wanted_parameters": wanted,
            "nearest": {free: nearest.sizes[free], "num_parameters": nearest.parameters},
        }
        print(json.dumps(found))
        return
    off = parameters / wanted - 1
    print(f"{free} {sizes[free]}: {parameters:,} parameters ({off:+.2%} of {wanted:,})")
    if abs(off) > 0.1:
        print(
            f"The budget is missed: with the other sizes as they are, no {free} comes nearer. "
            "Give another size."
        )
    if named and sizes[free] != nearest.sizes[free]:
        where = DOCUMENTS[named.document] if named.document else "a baseline"
        print(
            f"This is {named.name} ({where}). Nearest to the budget is "
            f"{free} {nearest.sizes[free]}: {nearest.parameters:,}"
        )
    from vramcast.reporting.sections import knobs_of

    workload = named.name if named else f"vramcast_zoo.{family}:build {knobs_of(sizes)}"
    print(f"vramcast predict {workload}")
