"""Knobs: the keyword arguments of a workload's function, checked against its signature.

Text is converted to the annotated type, a Python value is checked.
"""

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Union, get_args, get_origin

from vramcast.errors import WorkloadError
from vramcast.text import did_you_mean

Parameter = inspect.Parameter
EMPTY = Parameter.empty
ANY_PARAMETER = Parameter("any", Parameter.KEYWORD_ONLY)
SIZE_NAMES = ("depth", "width", "heads", "layers")
HOW_TO_WRITE = "Write knobs as key=value, for example batch_size=8."
SIZE_ENDINGS = ("_size", "_len", "_length")
TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
UNIONS = (Union, types.UnionType)
ANYTHING = (Any, object, inspect.Parameter.empty)
NOTHING = (None, types.NoneType)


class Text(str):
    """A knob's value as it was typed; the parameter's annotation says what it means."""

    __slots__ = ()


def split_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`["batch_size=8"]` -> `{"batch_size": Text("8")}`; a value may itself hold '='."""
    values: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = map(str.strip, assignment.partition("="))
        if not equals:
            raise WorkloadError(f"The knob {assignment!r} has no '='.", HOW_TO_WRITE)
        if not key:
            raise WorkloadError(f"{assignment!r} has no knob's name before the '='.", HOW_TO_WRITE)
        if key in values:
            raise _given_twice(key, values[key], value)
        values[key] = Text(value)
    return values


def joined(knobs: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, object]:
    """The knobs of a call: `knobs={...}`, which may have the names of options, and the other
    arguments."""
    knobs = knobs or {}
    for name in knobs.keys() & more:
        raise _given_twice(name, knobs[name], more[name])
    return {**knobs, **more}


def separated(knobs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Knobs in the form that JSON can hold: typed values and text apart."""
    text = {name: str(value) for name, value in knobs.items() if isinstance(value, Text)}
    typed = {name: value for name, value in knobs.items() if name not in text}
    return {"knobs": typed, "knobs_text": text}


def together(data: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `separated`."""
    text = {name: Text(value) for name, value in data.get("knobs_text", {}).items()}
    return {**data.get("knobs", {}), **text}


def bind_knobs(function: Callable[..., object], values: Mapping[str, object]) -> dict[str, object]:
    """The keyword arguments: given ones first, then defaults, so that a record has them all."""
    known, takes_any = _parameters(function)
    _check_names(function, known, known.keys() & values if takes_any else values)
    bound = {name: one.default for name, one in known.items() if one.default is not EMPTY}
    for name, value in values.items():
        parameter = known.get(name, ANY_PARAMETER)
        bound[name] = _value_of(name, value, _type_of(function, parameter), parameter)
        _check_size(name, bound[name], parameter.default)
    return {**{name: bound[name] for name in values}, **bound}


def described(function: Callable[..., object]) -> list[dict[str, Any]]:
    """The knobs with their defaults and the values that each takes, as plain values."""
    # imported here, because it takes a while
    from vramcast.records.base import plain_value

    return [
        {
            "name": name,
            "default": None if one.default is EMPTY else plain_value(one.default),
            "takes": type_name(_type_of(function, one)),
            "required": one.default is EMPTY,
        }
        for name, one in _parameters(function)[0].items()
    ]


def _parameters(function: Callable[..., object]) -> tuple[dict[str, Parameter], bool]:
    """The parameters that are knobs, and whether the function also takes any other name."""
    try:
        # From 3.14 on annotations are evaluated late: one that fails must not stop the rest.
        if sys.version_info >= (3, 14):
            import annotationlib

            late = annotationlib.Format.FORWARDREF
            signature = inspect.signature(function, annotation_format=late)
        else:
            signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"The parameters of {_name(function)} cannot be read: {error}.",
            "Write the workload as a plain Python function.",
        ) from error
    known, takes_any = {}, False
    for one in signature.parameters.values():
        if one.kind is Parameter.POSITIONAL_ONLY:
            name = _name(function)
            raise WorkloadError(
                f"The parameter {one.name!r} of {name} is positional-only "
                "and cannot be given as a knob.",
                f"Remove the '/' from the signature of {name}: knobs are keyword arguments.",
            )
        if one.kind is Parameter.VAR_KEYWORD:
            takes_any = True
        elif one.kind is not Parameter.VAR_POSITIONAL:
            known[one.name] = one
    return known, takes_any


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _type_of(function: Callable[..., object], parameter: Parameter) -> object:
    """The annotation, or the type of the default; EMPTY if nothing is known."""
    annotated = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    names = getattr(inspect.unwrap(annotated), "__globals__", {})
    one = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    found: object = EMPTY
    # A name that was imported under TYPE_CHECKING cannot be evaluated, and others may raise
    # anything.
    with contextlib.suppress(Exception):
        found = typing.get_type_hints(one, {**vars(typing), **names})[parameter.name]
    # Python allows any object as an annotation: `x: 5`, `x: [1, 2]`.
    if not callable(found) and typing.get_origin(found) is None:
        found = EMPTY
    default = parameter.default
    if found is EMPTY and isinstance(default, bool | int | float | str | Enum):
        return type(default)
    # `x: int = None` is common and means `int | None`; without an annotation it means anything.
    if default is None:
        found = typing.Any if found is EMPTY else found
        return typing.Union[found, None]  # noqa: UP007 - `|` does not take every type
    return found


def _given_twice(name: str, first: object, second: object) -> WorkloadError:
    return WorkloadError(
        f"The knob {name!r} is given twice: {first!r} and {second!r}.", "Give it once."
    )


def _check_names(
    function: Callable[..., object], known: Mapping[str, Parameter], given: Iterable[str]
) -> None:
    title, shown = _name(function), ", ".join(map(_shown, known.values()))
    advice = f"Knobs of {title}: {shown}." if known else f"{title} has no knobs."
    for name in given:
        if name not in known:
            advice = did_you_mean(name, known) + advice
            raise WorkloadError(f"{title} has no knob {name!r}.", advice)
    missing = [name for name in known if known[name].default is EMPTY and name not in given]
    if missing:
        names = f"the knob{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
        add = " ".join(f"{name}=..." for name in missing)
        raise WorkloadError(f"{title} needs {names}, which has no default.", f"Add {add}. {advice}")


def _shown(parameter: Parameter) -> str:
    name, default = parameter.name, parameter.default
    if default is EMPTY:
        return f"{name} (required)"
    shown = default.name if isinstance(default, Enum) else default
    return f"{name}={shown if isinstance(shown, str) and shown else repr(shown)}"


def _value_of(name: str, given: object, expected: object, parameter: Parameter) -> object:
    try:
        with contextlib.suppress(ValueError):
            if isinstance(given, Text):
                # A plain str: torch.compile gives up on a subclass of str.
                return convert_text(str(given), expected)
            if fits(given, expected):
                return given
    except CannotBeText as error:
        raise WorkloadError(
            f"The knob {name!r} of type {error} cannot be given as text ({given!r}).",
            "Give it a type such as int, float, bool, str, Literal or Enum, "
            "and make the object inside the function.",
        ) from None
    wanted = type_name(expected)
    advice = f"Give {name} a value that is {wanted}."
    if parameter.annotation is EMPTY:
        advice = (
            f"The type was taken from the default {_shown(parameter)}: "
            "annotate the parameter if other values are right."
        )
    raise WorkloadError(f"The knob {name!r} is {given!r}, expected {wanted}.", advice)


def _check_size(name: str, value: object, default: object) -> None:
    is_size = name in SIZE_NAMES or name.endswith(SIZE_ENDINGS) or name.startswith("num_")
    # The default num_workers=0 says that zero has a meaning.
    has_zero = isinstance(default, int) and default <= 0
    if is_size and type(value) is int and value <= 0 and not has_zero:
        raise WorkloadError(
            f"The knob {name!r} is {value}, expected 1 or more.",
            f"Give {name} a positive whole number.",
        )


class CannotBeText(Exception):
    """The annotation has no form as text, such as a list or a class of the user's."""


def convert_text(text: str, annotation: object) -> object:
    if annotation in ANYTHING:
        annotation = int | float | bool | str
    if get_origin(annotation) in UNIONS:
        return _convert_union(text, annotation)
    if get_origin(annotation) is Literal:
        return _convert_literal(text, get_args(annotation))
    if annotation in NOTHING:
        if text.strip().lower() != "none":
            raise ValueError(text)
        return None
    if isinstance(annotation, type):
        return _convert_class(text, annotation)
    raise CannotBeText(type_name(annotation))


def fits(value: object, annotation: object) -> bool:
    """Whether a Python value is of that type. Types that are not known here always fit."""
    members = get_args(annotation)
    if get_origin(annotation) in UNIONS:
        return any(fits(value, member) for member in members)
    if get_origin(annotation) is Literal:  # because 1 == True
        return any(value == member and type(value) is type(member) for member in members)
    if annotation in NOTHING:
        return value is None
    if annotation in (int, float):
        numbers = int if annotation is int else int | float
        return isinstance(value, numbers) and not isinstance(value, bool)
    if isinstance(annotation, type) and issubclass(annotation, bool | str | Enum):
        return isinstance(value, annotation)
    return True


def type_name(annotation: object) -> str:
    """The type as a person would write it: `int | None`, `one of fp32, amp`."""
    members = get_args(annotation)
    if get_origin(annotation) in UNIONS:
        return " | ".join(map(type_name, members))
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(str(member) for member in members if member != '')}"
    if annotation in NOTHING:
        return "none"
    if annotation in ANYTHING:
        return "any"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"one of {', '.join(annotation.__members__)}"
    if isinstance(annotation, type) and not members:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _convert_union(text: str, annotation: object) -> object:
    # `none` first and `str` last, because `str` takes every text.
    order = {types.NoneType: 0, str: 2}
    problem: Exception = ValueError(text)
    for member in sorted(get_args(annotation), key=lambda one: order.get(one, 1)):
        try:
            return convert_text(text, member)
        except ValueError:
            continue
        except CannotBeText:
            problem = CannotBeText(type_name(annotation))
    raise problem


def _convert_literal(text: str, members: tuple[object, ...]) -> object:
    if text in members:  # if "1" is among them, it does not mean the number 1
        return text
    for member in members:
        with contextlib.suppress(ValueError):
            if not isinstance(member, str) and convert_text(text, type(member)) == member:
                return member
    raise ValueError(text)


def _convert_class(text: str, annotation: type) -> object:
    if annotation in (int, float, str):
        return annotation(text)
    word = text.strip()
    if annotation is bool and word.lower() in TRUE + FALSE:
        return word.lower() in TRUE
    if issubclass(annotation, Path):
        return Path(text).expanduser()
    if issubclass(annotation, Enum) and word in annotation.__members__:
        return annotation[word]
    is_dtype = (annotation.__module__, annotation.__name__) == ("torch", "dtype")
    if is_dtype:
        # Whoever annotates with torch.dtype has imported torch already; this module must not.
        value = getattr(sys.modules["torch"], word.removeprefix("torch."), None)
        if isinstance(value, annotation):
            return value
    if is_dtype or issubclass(annotation, bool | Enum):
        raise ValueError(text)
    raise CannotBeText(type_name(annotation))
