"""Which models a bench trains: names with their knobs, or one model in a sweep.

In a sweep one size of a model takes several values, and all have the same number of parameters:
another size is solved for. `e5-d1536-r270` with several dim: how wide should a low-rank network be?
Its rank is solved for. `e1-d512` with several dim: wide or deep? Its depth is solved for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vramcast.errors import UsageError
from vramcast.units import parse_count, parse_model_size
from vramcast.workload import parse_reference, split_assignments
from vramcast_zoo.catalogue import BY_NAME, find_named
from vramcast_zoo.sizing import FAMILIES, Family, Size, solve

Model = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Sweep:
    size: str
    values: Sequence[Size]
    parameters: int | None = None  # None: as many as the model has


def models_to_train(
    words: Sequence[str], sweep: str | Sweep | None = None, params: str | int | None = None
) -> list[Model]:
    models = split_models(words)
    if isinstance(sweep, str):
        sweep = parse_sweep(sweep, None if params is None else parse_count(str(params)))
    elif params is not None:
        raise UsageError(
            "--params is the budget of a sweep.",
            "Add --sweep, for example --sweep dim=512,768,1024.",
        )
    if sweep is not None and len(models) > 1:
        raise UsageError(
            "--sweep takes one model.",
            f"Give only {models[0][0]!r}, or sweep the others into the same --out one by one.",
        )
    chosen = models if sweep is None else swept_models(models[0], sweep)
    for name, _ in chosen:
        parse_reference(name)  # a wrong name is refused here
    return chosen


def split_models(words: Sequence[str]) -> list[Model]:
    """["e1-50m", "dim=64", "e5-d768-r539"] -> every model with the knobs that follow it."""
    groups: list[list[str]] = []
    for word in words:
        if "=" not in word:
            groups.append([word])
        elif groups:
            groups[-1].append(word)
        else:
            raise UsageError(
                f"The knob {word!r} comes before any model.",
                "Put it behind the model that it belongs to.",
            )
    if not groups:
        raise UsageError(
            "No model is given.", "Give names of the zoo (see vramcast zoo) or file.py:function."
        )
    models = [(name, split_assignments(knobs)) for name, *knobs in groups]
    for index, model in enumerate(models):
        if model in models[:index]:
            raise UsageError(
                f"The model {model[0]!r} is given twice.",
                "Give it once; --seeds trains it more than once.",
            )
    return models


def swept_models(model: Model, sweep: Sweep) -> list[Model]:
    """A model for every value: by its name in the zoo if it has one, else with sizes as knobs."""
    name, knobs = model
    family, base = _family_and_sizes(name)
    if len(sweep.values) < 2 or len(set(sweep.values)) < len(sweep.values):
        raise UsageError(
            f"--sweep {sweep.size} needs two or more different values.",
            "For example --sweep dim=512,768,1024.",
        )
    given = {
        key: parse_model_size(key, text) for key, text in knobs.items() if key in family.defaults
    }
    others = {key: text for key, text in knobs.items() if key not in family.defaults}
    if sweep.size in given:
        raise UsageError(
            f"{sweep.size!r} is swept and given as a knob too.", "Leave one of them out."
        )
    wanted = sweep.parameters or family.count(**{**base, **given})
    return [
        _at(family, base, {**given, sweep.size: value}, wanted, others) for value in sweep.values
    ]


def _at(
    family: Family,
    base: Mapping[str, Size],
    chosen: Mapping[str, Size],
    wanted: int,
    others: dict[str, str],
) -> Model:
    free = next((size for size in family.free if size not in chosen), None)
    given = {size: value for size, value in {**base, **chosen}.items() if size != free}
    try:
        named = find_named(family.name, wanted, given)
        if named is not None:
            return named.name, others
        sizes = solve(family, wanted, given).sizes
    except ValueError as problem:
        raise UsageError(
            f"--sweep: {problem}.", "Choose other values, or another budget with --params."
        ) from None
    return f"vramcast_zoo.{family.name}:make_model", {
        **{size: str(value) for size, value in sizes.items()},
        **others,
    }


def _family_and_sizes(name: str) -> tuple[Family, Mapping[str, Size]]:
    if name in BY_NAME:
        return FAMILIES[BY_NAME[name].family], BY_NAME[name].all_sizes
    if name in FAMILIES:
        return FAMILIES[name], FAMILIES[name].defaults
    raise UsageError(
        f"--sweep does not know the sizes of {name!r}.",
        f"Sweep a model of the zoo (see vramcast zoo), or a family: {', '.join(FAMILIES)}.",
    )


def parse_sweep(text: str, parameters: int | None) -> Sweep:
    """As in "dim=512,768,1024"."""
    size, equals, values = text.partition("=")
    if not equals or not size or not values:
        raise UsageError(
            f"--sweep {text!r} names no size and values.", "For example --sweep dim=512,768,1024."
        )
    return Sweep(size, [parse_model_size(size, value) for value in values.split(",")], parameters)
