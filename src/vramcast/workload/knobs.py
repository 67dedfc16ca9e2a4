"""Knobs: the keyword arguments of a workload's function, checked against its signature."""

from __future__ import annotations

import contextlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.text import did_you_mean
from vramcast.workload.conversion import CannotBeText, convert_text, fits, type_name

Parameter = inspect.Parameter
EMPTY = Parameter.empty
SIZE_NAMES = ("depth", "width", "heads", "layers")
HOW_TO_WRITE = "Write knobs as key=value, for example batch_size=8."
SIZE_ENDINGS = ("_size", "_len", "_length")


class Text(str):
    """A knob's value as it was typed. The annotation of the parameter says what it means."""

    __slots__ = ()


@dataclass(frozen=True)
class Knob:
    name: str
    annotation: object = EMPTY  # when nothing is known
    default: object = EMPTY  # when it must be given
    is_guessed: bool = False  # the annotation was taken from the default

    def __str__(self) -> str:
        if self.default is EMPTY:
            return f"{self.name} (required)"
        return f"{self.name}={_shown(self.default)}"


def split_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`["batch_size=8"]` -> `{"batch_size": Text("8")}`; a value may itself hold '='."""
    values: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        key = key.strip()
        if not equals:
            raise WorkloadError(f"The knob {assignment!r} has no '='.", HOW_TO_WRITE)
        if not key:
            raise WorkloadError(f"{assignment!r} has no knob's name before the '='.", HOW_TO_WRITE)
        if key in values:
            raise _given_twice(key, values[key], value.strip())
        values[key] = Text(value.strip())
    return values


def joined(knobs: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, object]:
    """The knobs of a call: `knobs={...}`, which may have the names of options, and the others."""
    for name in more:
        if knobs is not None and name in knobs:
            raise _given_twice(name, knobs[name], more[name])
    return {**(knobs or {}), **more}


def separated(knobs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Knobs as JSON has them: typed values and text apart."""
    text = {name: str(value) for name, value in knobs.items() if isinstance(value, Text)}
    typed = {name: value for name, value in knobs.items() if name not in text}
    return {"knobs": typed, "knobs_text": text}


def together(data: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `separated`."""
    text = {name: Text(value) for name, value in data.get("knobs_text", {}).items()}
    return {**data.get("knobs", {}), **text}


def bind_knobs(function: Callable[..., object], values: Mapping[str, object]) -> dict[str, object]:
    """The keyword arguments for `function`, with defaults: a record says every value in force."""
    name = getattr(function, "__name__", type(function).__name__)
    known, takes_any = _knobs_of(function, name)
    _check_names(name, known, values if not takes_any else known.keys() & values)
    bound = {knob.name: knob.default for knob in known.values() if knob.default is not EMPTY}
    for name, value in values.items():
        knob = known.get(name) or Knob(name)
        bound[name] = _value_of(knob, value)
        _check_size(knob, bound[name])
    return bound


def _knobs_of(function: Callable[..., object], name: str) -> tuple[dict[str, Knob], bool]:
    """(by name, whether the function also takes knobs of any other name)."""
    parameters = _signature(function, name).parameters.values()
    known = {}
    for parameter in parameters:
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            raise WorkloadError(
                f"The parameter {parameter.name!r} of {name} is positional-only "
                "and cannot be given as a knob.",
                f"Remove the '/' from the signature of {name}: knobs are keyword arguments.",
            )
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            known[parameter.name] = _knob_of(parameter, _annotation(function, parameter))
    return known, any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)


def _knob_of(parameter: Parameter, annotation: object) -> Knob:
    default = parameter.default
    if annotation is EMPTY and isinstance(default, bool | int | float | str | Enum):
        return Knob(parameter.name, type(default), default, is_guessed=True)
    # `x: int = None` is common and means `int | None`; without an annotation it means anything.
    if default is None:
        annotation = typing.Union[typing.Any if annotation is EMPTY else annotation, None]  # noqa: UP007 - made at run time
    return Knob(parameter.name, annotation, default)


def _signature(function: Callable[..., object], name: str) -> inspect.Signature:
    try:
        # From 3.14 on annotations are evaluated late: one that fails must not stop the rest.
        if sys.version_info >= (3, 14):
            import annotationlib

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"The parameters of {name} cannot be read: {error}.",
            "Write the workload as a plain Python function.",
        ) from error


def _annotation(function: Callable[..., object], parameter: Parameter) -> object:
    """EMPTY if it cannot be evaluated, such as a name imported under TYPE_CHECKING."""
    annotated = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    names = getattr(inspect.unwrap(annotated), "__globals__", {})
    one = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        found = typing.get_type_hints(one, {**vars(typing), **names})[parameter.name]
    except Exception:  # noqa: BLE001 - evaluating a user's annotation may raise anything
        return EMPTY
    # Python allows any object as an annotation: `x: 5`, `x: [1, 2]`.
    return found if callable(found) or typing.get_origin(found) is not None else EMPTY


def _given_twice(name: str, first: object, second: object) -> WorkloadError:
    return WorkloadError(
        f"The knob {name!r} is given twice: {first!r} and {second!r}.", "Give it once."
    )


def _check_names(function: str, known: Mapping[str, Knob], given: Iterable[str]) -> None:
    advice = f"{function} has no knobs."
    if known:
        advice = f"Knobs of {function}: {', '.join(map(str, known.values()))}."
    for name in given:
        if name not in known:
            advice = did_you_mean(name, known) + advice
            raise WorkloadError(f"{function} has no knob {name!r}.", advice)
    missing = [name for name in known if known[name].default is EMPTY and name not in given]
    if missing:
        names = f"the knob{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
        shown = " ".join(f"{name}=..." for name in missing)
        raise WorkloadError(
            f"{function} needs {names}, which has no default.", f"Add {shown}. {advice}"
        )


def _value_of(knob: Knob, given: object) -> object:
    """Text is converted, a Python value is checked."""
    try:
        with contextlib.suppress(ValueError):
            if isinstance(given, Text):
                return convert_text(given, knob.annotation)
            if fits(given, knob.annotation):
                return given
    except CannotBeText as error:
        raise WorkloadError(
            f"The knob {knob.name!r} of type {error} cannot be given as text ({given!r}).",
            "Give it a type such as int, float, bool, str, Literal or Enum, "
            "and make the object inside the function.",
        ) from None
    expected = type_name(knob.annotation)
    advice = f"Give {knob.name} a value that is {expected}."
    if knob.is_guessed:
        advice = (
            f"The type was taken from the default {knob}: "
            "annotate the parameter if other values are right."
        )
    raise WorkloadError(f"The knob {knob.name!r} is {given!r}, expected {expected}.", advice)


def _check_size(knob: Knob, value: object) -> None:
    name, default = knob.name, knob.default
    is_size = name in SIZE_NAMES or name.endswith(SIZE_ENDINGS) or name.startswith("num_")
    # The default num_workers=0 says that zero has a meaning.
    has_zero = isinstance(default, int) and default <= 0
    if is_size and type(value) is int and value <= 0 and not has_zero:
        raise WorkloadError(
            f"The knob {name!r} is {value}, expected 1 or more.",
            f"Give {name} a positive whole number.",
        )


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    return value if isinstance(value, str) and value else repr(value)
