"""Knobs: the keyword arguments of a workload's function, checked against its signature."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.text import did_you_mean
from vramcast.workload.conversion import CannotBeText, convert_text, fits, type_name

Parameter = inspect.Parameter
EMPTY = Parameter.empty
SIZE_NAMES = frozenset({"batch_size", "seq_len", "depth", "width", "heads", "layers"})
HOW_TO_WRITE = "Write knobs as key=value, for example batch_size=8."
SIZE_ENDINGS = ("_size", "_len", "_length")


class Text(str):
    """A knob's value as it was typed. The annotation of the parameter says what it means."""

    __slots__ = ()


@dataclass(frozen=True)
class Knob:
    name: str
    annotation: object  # EMPTY when nothing is known
    default: object  # EMPTY when it must be given
    guessed: bool  # the annotation was taken from the default

    def __str__(self) -> str:
        if self.default is EMPTY:
            return f"{self.name} (required)"
        return f"{self.name}={_shown(self.default)}"


@dataclass(frozen=True)
class Knobs:
    of: str  # the function's name
    known: Mapping[str, Knob]
    takes_any: bool  # the function has **kwargs

    def advice(self) -> str:
        if not self.known:
            return f"{self.of} has no knobs."
        return f"Knobs of {self.of}: {', '.join(map(str, self.known.values()))}."


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
    knobs = _knobs_of(function)
    _check_names(knobs, values)
    bound = {name: knob.default for name, knob in knobs.known.items() if knob.default is not EMPTY}
    for name, value in values.items():
        knob = knobs.known.get(name) or Knob(name, EMPTY, EMPTY, guessed=False)
        bound[name] = _convert(knob, value) if isinstance(value, Text) else _checked(knob, value)
        _check_size(knob, bound[name])
    return bound


def _knobs_of(function: Callable[..., object]) -> Knobs:
    name = getattr(function, "__name__", type(function).__name__)
    parameters = _signature(function, name).parameters.values()
    hints = _hints(function, parameters)
    known: dict[str, Knob] = {}
    for parameter in parameters:
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            raise WorkloadError(
                f"The parameter {parameter.name!r} of {name} is positional-only "
                "and cannot be given as a knob.",
                f"Remove the '/' from the signature of {name}: knobs are keyword arguments.",
            )
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            known[parameter.name] = _knob_of(parameter, hints.get(parameter.name, EMPTY))
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    return Knobs(name, known, takes_any)


def _knob_of(parameter: Parameter, annotation: object) -> Knob:
    default = parameter.default
    if not _is_type(annotation):
        annotation = EMPTY
    if annotation is EMPTY and isinstance(default, bool | int | float | str | Enum):
        return Knob(parameter.name, type(default), default, guessed=True)
    # `x: int = None` is common and means `int | None`; without an annotation it means anything.
    if default is None:
        annotation = typing.Union[typing.Any if annotation is EMPTY else annotation, None]  # noqa: UP007 - made at run time
    return Knob(parameter.name, annotation, default, guessed=False)


def _is_type(annotation: object) -> bool:
    """Python allows any object as an annotation: `x: 5`, `x: [1, 2]`."""
    return annotation is None or callable(annotation) or typing.get_origin(annotation) is not None


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


def _hints(function: Callable[..., object], parameters: Iterable[Parameter]) -> dict[str, object]:
    """Annotations as objects. If one cannot be evaluated, the others still are.

    A name imported under TYPE_CHECKING cannot be evaluated, for example.
    """
    annotated = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    try:
        return dict(typing.get_type_hints(annotated))
    except Exception:  # noqa: BLE001 - evaluating a user's annotation may raise anything
        names = getattr(inspect.unwrap(annotated), "__globals__", {})
        return {parameter.name: _evaluated(parameter.annotation, names) for parameter in parameters}


def _evaluated(annotation: object, names: dict[str, object]) -> object:
    if isinstance(annotation, str):
        try:
            return eval(annotation, {**vars(typing), **names})
        except Exception:  # noqa: BLE001 - as above
            return EMPTY
    return EMPTY if isinstance(annotation, typing.ForwardRef) else annotation


def _given_twice(name: str, first: object, second: object) -> WorkloadError:
    return WorkloadError(
        f"The knob {name!r} is given twice: {first!r} and {second!r}.", "Give it once."
    )


def _check_names(knobs: Knobs, given: Mapping[str, object]) -> None:
    unknown = [] if knobs.takes_any else [name for name in given if name not in knobs.known]
    if unknown:
        advice = did_you_mean(unknown[0], knobs.known) + knobs.advice()
        raise WorkloadError(f"{knobs.of} has no knob {unknown[0]!r}.", advice)
    missing = [
        name for name, knob in knobs.known.items() if knob.default is EMPTY and name not in given
    ]
    if missing:
        shown = " ".join(f"{name}=..." for name in missing)
        raise WorkloadError(
            f"{knobs.of} needs {_listed(missing)}, which has no default.",
            f"Add {shown}. {knobs.advice()}",
        )


def _convert(knob: Knob, text: str) -> object:
    try:
        return convert_text(text, knob.annotation)
    except CannotBeText as error:
        raise WorkloadError(
            f"The knob {knob.name!r} of type {error} cannot be given as text ({text!r}).",
            "Give it a type such as int, float, bool, str, Literal or Enum, "
            "and make the object inside the function.",
        ) from None
    except ValueError:
        raise _misfit(knob, text) from None


def _checked(knob: Knob, value: object) -> object:
    if not fits(value, knob.annotation):
        raise _misfit(knob, value)
    return value


def _misfit(knob: Knob, value: object) -> WorkloadError:
    expected = type_name(knob.annotation)
    advice = f"Give {knob.name} a value that is {expected}."
    if knob.guessed:
        advice = (
            f"The type was taken from the default {knob}: "
            "annotate the parameter if other values are right."
        )
    return WorkloadError(f"The knob {knob.name!r} is {value!r}, expected {expected}.", advice)


def _check_size(knob: Knob, value: object) -> None:
    if not _is_size(knob.name) or type(value) is not int or value > 0:
        return
    # The default num_workers=0 says that zero has a meaning.
    if isinstance(knob.default, int) and knob.default <= 0:
        return
    raise WorkloadError(
        f"The knob {knob.name!r} is {value}, expected 1 or more.",
        f"Give {knob.name} a positive whole number.",
    )


def _is_size(name: str) -> bool:
    return name in SIZE_NAMES or name.endswith(SIZE_ENDINGS) or name.startswith("num_")


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    return value if isinstance(value, str) and value else repr(value)


def _listed(names: list[str]) -> str:
    return f"the knob{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
