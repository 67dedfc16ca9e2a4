from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from vramcast.workload.knobs import CannotBeText, convert_text, fits, type_name


class Mode(Enum):
    FAST = 1
    SMALL = 2


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("8", int, 8),
        ("1_000", int, 1000),
        ("-3", int, -3),
        ("1e-4", float, 1e-4),
        ("2", float, 2.0),
        ("08", str, "08"),
        ("none", str, "none"),
        ("none", int | None, None),
        ("None", Optional[int], None),  # noqa: UP045
        ("4", Union[int, str], 4),  # noqa: UP007
        ("x", str | int, "x"),
        ("4", str | int, 4),
        ("none", str | None, None),
        ("off", Literal["off", "on"], "off"),
        ("2", Literal[1, 2], 2),
        ("2", Literal["2", 2], "2"),
        ("false", Literal[False, "full"], False),
        ("full", Literal[False, "full"], "full"),
        ("none", Literal["a", None], None),  # noqa: PYI061
        ("full", bool | Literal["full"], "full"),
        ("FAST", Mode, Mode.FAST),
        ("SMALL", Mode | None, Mode.SMALL),
        ("a/b", Path, Path("a/b")),
        ("7", Any, 7),
        ("7", object, 7),
    ],
)
def test_text_becomes_the_annotated_type(text: str, annotation: object, value: object) -> None:
    converted = convert_text(text, annotation)
    assert converted == value and type(converted) is type(value)


@pytest.mark.parametrize(
    ("words", "value"), [("true yes 1 on TRUE Yes", True), ("false no 0 off False OFF", False)]
)
def test_a_yes_or_no_has_many_spellings(words: str, value: bool) -> None:
    assert all(convert_text(word, bool) is value for word in words.split())


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("1e6", int),
        ("8.0", int),
        ("none", int),
        ("eight", float),
        ("maybe", bool),
        ("2", bool),
        ("x", int | None),
        ("c", Literal["a", "b"]),
        ("3", Literal[1, 2]),
        ("fast", Mode),
        ("1", Mode),
        ("x", None),
    ],
)
def test_text_of_another_type_does_not_fit(text: str, annotation: object) -> None:
    with pytest.raises(ValueError, match=text):
        convert_text(text, annotation)


@pytest.mark.parametrize("annotation", [list[int], dict, tuple[int, ...], list[int] | None])
def test_some_types_have_no_form_as_text(annotation: object) -> None:
    with pytest.raises(CannotBeText):
        convert_text("1", annotation)


def test_torch_data_types_go_by_their_names() -> None:
    torch = pytest.importorskip("torch")
    assert convert_text("bfloat16", torch.dtype) is torch.bfloat16
    assert convert_text("torch.half", torch.dtype) is torch.float16
    with pytest.raises(ValueError, match="Tensor"):
        convert_text("Tensor", torch.dtype)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.5", 0.5), ("true", True), ("off", False), ("amp", "amp"), ("1", 1)],
)
def test_without_a_type_text_takes_the_plainest_reading(text: str, value: object) -> None:
    found = convert_text(text, Any)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (8, int),
        (8, float),
        (0.5, float),
        (True, bool),
        ("a", str),
        (None, int | None),
        ("a", Literal["a"]),
        (Mode.FAST, Mode),
        ([1], list[int]),
        (object(), Any),
    ],
)
def test_a_value_of_the_type_fits(value: object, annotation: object) -> None:
    assert fits(value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        (True, float),
        (1, bool),
        (1.0, int),
        ("8", int),
        (8, str),
        (None, int),
        (True, Literal[1]),
        ("FAST", Mode),
        (1, None),
    ],
)
def test_a_value_of_another_type_does_not_fit(value: object, annotation: object) -> None:
    assert not fits(value, annotation)


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (int, "int"),
        (int | None, "int | none"),
        (Literal["a", 1], "one of a, 1"),
        (Mode, "one of FAST, SMALL"),
        (list[int], "list[int]"),
        (Any, "any"),
    ],
)
def test_types_are_named_as_people_write_them(annotation: object, name: str) -> None:
    assert type_name(annotation) == name
