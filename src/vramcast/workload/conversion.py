"""One knob's value and its annotation: text is converted, a Python value is checked.

`ValueError` means that the value does not fit; the caller writes the message.
"""

from __future__ import annotations

import inspect
import sys
import types
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

TRUE, FALSE = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})
NONE = "none"
NoneType = type(None)


class CannotBeText(Exception):
    """The annotation has no form as text: a list, a class of the user's."""


def convert_text(text: str, annotation: object) -> object:
    """The value that `text` stands for under `annotation`."""
    if annotation in (Any, object, inspect.Parameter.empty):
        return look(text)
    if get_origin(annotation) in (Union, types.UnionType):
        return _convert_union(text, annotation)
    if get_origin(annotation) is Literal:
        return _convert_literal(text, annotation)
    if annotation in (None, NoneType):
        return _none(text)
    if isinstance(annotation, type):
        return _convert_class(text, annotation)
    raise CannotBeText(type_name(annotation))


def look(text: str) -> object:
    """The plainest reading of a text without an annotation: a number, true or false, or text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return _boolean(text)
    except ValueError:
        return text


def fits(value: object, annotation: object) -> bool:
    """Whether a Python value is of the annotated type. Types that are not known here always fit."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(fits(value, member) for member in get_args(annotation))
    if get_origin(annotation) is Literal:
        return any(
            value == member and type(value) is type(member) for member in get_args(annotation)
        )
    if annotation in (None, NoneType):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation in (bool, str) or _is_enum(annotation):
        return isinstance(value, annotation)  # type: ignore[arg-type]
    return True


def type_name(annotation: object) -> str:
    """As a person would write it: `int | None`, `one of fp32, amp`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(type_name(member) for member in get_args(annotation))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(member) for member in get_args(annotation))
    if annotation in (None, NoneType):
        return NONE
    if annotation in (Any, object, inspect.Parameter.empty):
        return "any"
    if _is_enum(annotation):
        return "one of " + ", ".join(annotation.__members__)  # type: ignore[attr-defined]
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _convert_union(text: str, annotation: object) -> object:
    # `none` first and `str` last, because `str` takes every text.
    order = {None: 0, NoneType: 0, str: 2}
    members = sorted(get_args(annotation), key=lambda member: order.get(member, 1))
    problem: Exception = ValueError(text)
    for member in members:
        try:
            return convert_text(text, member)
        except ValueError:
            continue
        except CannotBeText:
            problem = CannotBeText(type_name(annotation))
    raise problem


def _convert_literal(text: str, annotation: object) -> object:
    members = get_args(annotation)
    if text in members:  # "1" may be among them, and then it is not the number 1
        return text
    for member in members:
        try:
            if not isinstance(member, str) and convert_text(text, type(member)) == member:
                return member
        except ValueError:
            continue
    raise ValueError(text)


def _convert_class(text: str, annotation: type) -> object:
    if annotation is bool:
        return _boolean(text)
    if annotation in (int, float, str):
        return annotation(text)
    if issubclass(annotation, Enum):
        try:
            return annotation[text.strip()]
        except KeyError:
            raise ValueError(text) from None
    if issubclass(annotation, Path):
        return Path(text).expanduser()
    if (annotation.__module__, annotation.__name__) == ("torch", "dtype"):
        return _torch_dtype(text, annotation)
    raise CannotBeText(type_name(annotation))


def _torch_dtype(text: str, annotation: type) -> object:
    # Whoever annotates with torch.dtype has imported torch already; this module must not.
    value = getattr(sys.modules["torch"], text.strip().removeprefix("torch."), None)
    if isinstance(value, annotation):
        return value
    raise ValueError(text)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE | FALSE:
        raise ValueError(text)
    return word in TRUE


def _none(text: str) -> object:
    if text.strip().lower() != NONE:
        raise ValueError(text)
    return None


def _is_enum(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)
