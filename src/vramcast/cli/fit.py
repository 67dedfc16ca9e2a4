"""`vramcast fit`."""

from typing import Annotated

import typer

import vramcast
from vramcast.cli import options
from vramcast.cli.command import ExitCode, assignments, command, show
from vramcast.errors import UsageError


@command(
    "fit",
    question="Which law does the memory of measured runs follow?",
    examples="""
    vramcast fit runs.csv --term "ring=batch_size*seq_len*width*2"
    vramcast fit runs/probe-a runs/probe-b runs/probe-c
    """,
    then="--at batch_size=24 applies the law. vramcast report draws what --json printed.",
)
def fit(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of vramcast probe, or a CSV table of runs.")
    ],
    terms: Annotated[
        str | None,
        typer.Option(
            help="Terms of the law, with commas: constant, per_sample, per_token, "
            "per_token_and_length, or your own."
        ),
    ] = None,
    term: Annotated[
        list[str] | None,
        typer.Option(help="A term of your own: name=expression of knobs. Can be repeated."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Fit one law for each value of this knob.")] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Only print what the law gives for key=value. Can be repeated."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Fit a law for memory to measured runs. Each run's error is also shown with that run left out.

    Exit codes: 0 done, 2 wrong usage or a question outside what was measured.
    """
    laws = vramcast.fit(*runs, terms=terms, own_terms=assignments(term), by=by)
    if at:
        print(_answer(laws, at))
    elif as_json:
        print(f"[{', '.join(law.to_json() for law in laws)}]")
    else:
        for law in laws:
            show(law)
    return ExitCode.DONE


def _answer(laws: "list[vramcast.MemoryFit]", at: list[str]) -> int:
    if len(laws) != 1:
        raise UsageError(
            f"--at is for one law, and there are {len(laws)}.", "Give the runs of one group."
        )
    try:
        knobs = {name: float(value) for name, value in assignments(at).items()}
    except ValueError:
        raise UsageError(
            f"--at {' '.join(at)!r} has a value that is not a number.",
            "For example --at batch_size=24.",
        ) from None
    names = [knob.name for knob in laws[0].knobs]
    for name in knobs:
        if name not in names:
            raise UsageError(
                f"--at {name}: the law does not depend on {name!r}.",
                f"It depends on: {', '.join(names) or 'nothing'}.",
            )
    return vramcast.law_at(laws[0], knobs)
