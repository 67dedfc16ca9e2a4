"""`vramcast zoo`: models by name, their knobs, and the size that meets a budget of parameters."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from vramcast.cli import options
from vramcast.cli.command import ExitCode, assignments, command
from vramcast.errors import UsageError
from vramcast.units import parse_count, parse_model_size

if TYPE_CHECKING:
    from vramcast_zoo.sizing import Size


@command(
    "zoo",
    question="Which models are known by name? Which size has N parameters?",
    examples="""
    vramcast zoo
    vramcast zoo llama
    vramcast zoo hf:gpt2
    vramcast zoo e5 --params 50M --dim 1536
    """,
    then="vramcast predict NAME batch_size=8 --gpu rtx-4090.",
    needs_arguments=False,
)
def zoo(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A model, to see its knobs. Or a family (e1, e5, mamba2, ...), a library (hf, "
            "timm, "
            "torchvision), or a part of a name."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Argument(help="Sizes that are fixed, as key=value.")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="Number of parameters, for example 50M. Finds the size that is not given."
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="The same as dim=N.")] = None,
    depth: Annotated[int | None, typer.Option(help="The same as depth=N.")] = None,
    rank: Annotated[int | None, typer.Option(help="The same as rank=N.")] = None,
    as_json: options.Json = False,
) -> int:
    """List the models that are known by name, show the knobs of one, or find the size that has a
    given number of parameters.

    Exit codes: 0 done, 2 wrong usage.
    """
    from vramcast_zoo.sizing import FAMILIES

    texts = assignments(sizes)
    named = {"dim": dim, "depth": depth, "rank": rank}
    texts |= {size: str(value) for size, value in named.items() if value is not None}
    given = {size: parse_model_size(size, text) for size, text in texts.items()}
    if params is None and given:
        raise UsageError(
            "Sizes are given but no budget.", "Add --params, for example --params 50M."
        )
    if params is None:
        from vramcast.cli import zoo_search

        zoo_search.show_models(name, as_json)
        return ExitCode.DONE
    if name not in FAMILIES:
        raise UsageError(
            "--params needs a family.",
            f"Name one of {', '.join(FAMILIES)}, as in: vramcast zoo e5 --params 50M.",
        )
    _solve(name, parse_count(params), given, as_json)
    return ExitCode.DONE


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
