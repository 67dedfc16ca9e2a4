"""Which models a bench trains: names with their knobs, or one model in a sweep.

In a sweep one size takes several values, and another one is adapted so that all models have the
same number of parameters.
"""

from collections.abc import Mapping, Sequence

from vramcast.errors import UsageError
from vramcast.units import parse_count, parse_model_size
from vramcast.workload import parse_reference, split_assignments
from vramcast_zoo.catalogue import BY_NAME, find_named
from vramcast_zoo.sizing import FAMILIES, Family, Size, solve

Model = tuple[str, dict[str, str]]
EXAMPLE = "For example --sweep dim=512,768,1024."


def models_to_train(
    words: Sequence[str], sweep: str | None = None, params: str | int | None = None
) -> list[Model]:
    models = split_models(words)
    parameters = None if params is None else parse_count(str(params))
    if sweep is not None:
        if len(models) > 1:
            raise UsageError(
                "--sweep takes one model.",
                f"Give only {models[0][0]!r}, or sweep the others into the same --out one by one.",
            )
        models = swept_models(models[0], sweep, parameters)
    elif parameters:
        raise UsageError("--params is the budget of a sweep.", f"Add --sweep. {EXAMPLE}")
    for name, _ in models:
        parse_reference(name)  # raises an error for a wrong name
    return models


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
    for model in models:
        if models.count(model) > 1:
            raise UsageError(
                f"The model {model[0]!r} is given twice.",
                "Give it once; --seeds trains it more than once.",
            )
    return models


def swept_models(model: Model, sweep: str, parameters: int | None = None) -> list[Model]:
    """A model for every value of "dim=512,768,1024", by default with as many parameters as the
    given model."""
    name, knobs = model
    family, base = _family_and_sizes(name)
    swept, _, texts = sweep.partition("=")
    if not swept or not texts:
        raise UsageError(f"--sweep {sweep!r} names no size and values.", EXAMPLE)
    values = [parse_model_size(swept, text) for text in texts.split(",")]
    if len(values) < 2 or len(set(values)) < len(values):
        raise UsageError(f"--sweep {swept} needs two or more different values.", EXAMPLE)
    given = {
        key: parse_model_size(key, text) for key, text in knobs.items() if key in family.defaults
    }
    others = {key: text for key, text in knobs.items() if key not in given}
    if swept in given:
        raise UsageError(f"{swept!r} is swept and given as a knob too.", "Leave one of them out.")
    wanted = parameters or family.count(**{**base, **given})
    free = next((size for size in family.free if size not in (*given, swept)), None)
    fixed = {size: value for size, value in {**base, **given}.items() if size != free}
    models = [_at(family, {**fixed, swept: value}, wanted) for value in values]
    return [(name, {**sizes, **others}) for name, sizes in models]


def _at(family: Family, given: Mapping[str, Size], wanted: int) -> Model:
    """The model of these sizes: by its name in the zoo if it has one, else with its sizes as
    knobs."""
    try:
        named = find_named(family.name, wanted, given)
        if named is not None:
            return named.name, {}
        sizes = solve(family, wanted, given).sizes
    except ValueError as problem:
        raise UsageError(
            f"--sweep: {problem}.", "Choose other values, or another budget with --params."
        ) from None
    knobs = {size: str(value) for size, value in sizes.items()}
    return f"vramcast_zoo.{family.name}:make_model", knobs


def _family_and_sizes(name: str) -> tuple[Family, Mapping[str, Size]]:
    if name in BY_NAME:
        return FAMILIES[BY_NAME[name].family], BY_NAME[name].all_sizes
    if name in FAMILIES:
        return FAMILIES[name], FAMILIES[name].defaults
    raise UsageError(
        f"--sweep does not know the sizes of {name!r}.",
        f"Sweep a model of the zoo (see vramcast zoo), or a family: {', '.join(FAMILIES)}.",
    )
