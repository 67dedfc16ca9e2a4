"""One knob's value and its annotation: text is converted, a Python value is checked.

`ValueError` means that the value does not fit; the caller writes the message.
"""

import inspect
import sys
import types
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
UNIONS = (Union, types.UnionType)
ANYTHING = (Any, object, inspect.Parameter.empty)
NOTHING = (None, types.NoneType)


class CannotBeText(Exception):
    """The annotation has no form as text: a list, a class of the user's."""


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
    if get_origin(annotation) is Literal:  # 1 == True
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
    """As a person would write it: `int | None`, `one of fp32, amp`."""
    members = get_args(annotation)
    if get_origin(annotation) in UNIONS:
        return " | ".join(map(type_name, members))
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(str, members))}"
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
    if text in members:  # "1" may be among them, and then it is not the number 1
        return text
    for member in members:
        with suppress(ValueError):
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
