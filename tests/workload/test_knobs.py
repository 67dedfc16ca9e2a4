from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, Optional

import pytest

from vramcast.errors import WorkloadError
from vramcast.workload import Text, bind_knobs, joined, split_assignments

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


def build(
    *,
    batch_size: int = 8,
    seq_len: int = 1024,
    rate: float = 1e-3,
    precision: Literal["fp32", "amp"] = "amp",
) -> None: ...


def bound(function: Any, text: dict[str, str], values: dict[str, object]) -> dict[str, object]:
    return bind_knobs(function, {**{name: Text(value) for name, value in text.items()}, **values})


def failure(
    function: Any, text: dict[str, str] | None = None, /, **values: object
) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        bound(function, text or {}, values)
    return caught.value


def test_assignments_are_split_at_the_first_equals_sign() -> None:
    assert split_assignments(["batch_size=8", "note=a=b", "empty=", " seq_len = 4 "]) == {
        "batch_size": "8",
        "note": "a=b",
        "empty": "",
        "seq_len": "4",
    }


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["batch_size"], "'batch_size' has no '='"),
        (["=8"], "'=8' has no knob's name"),
        (["a=1", "a=2"], "'a' is given twice: '1' and '2'"),
    ],
)
def test_a_wrong_assignment_is_refused(assignments: list[str], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        split_assignments(assignments)
    assert message in caught.value.message and caught.value.advice


def test_text_is_converted_by_the_annotation_and_defaults_are_filled_in() -> None:
    assert bound(build, {"batch_size": "16", "rate": "1"}, {"seq_len": 4}) == {
        "batch_size": 16,
        "seq_len": 4,
        "rate": 1.0,
        "precision": "amp",
    }


def test_an_unknown_knob_lists_the_knobs_with_their_defaults_and_a_close_one() -> None:
    error = failure(build, {"batchsize": "8"})
    assert error.message == "build has no knob 'batchsize'."
    assert "Did you mean 'batch_size'?" in error.advice
    assert "batch_size=8, seq_len=1024, rate=0.001, precision=amp" in error.advice


def test_a_function_without_knobs_says_so() -> None:
    def bare() -> None: ...

    assert failure(bare, {"x": "1"}).advice == "bare has no knobs."
    assert bound(bare, {}, {}) == {}


def test_a_required_knob_must_be_given() -> None:
    def needs(*, size: str, other: int, batch_size: int = 1) -> None: ...

    error = failure(needs, {"batch_size": "2"})
    assert "'size', 'other'" in error.message and "size=... other=..." in error.advice


def test_a_knob_given_twice_in_one_call_is_refused() -> None:
    with pytest.raises(WorkloadError, match="'batch_size' is given twice: '8' and 8"):
        joined({"batch_size": Text("8")}, {"batch_size": 8})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"batch_size": "1e6"}, "int"),
        ({"batch_size": "8.0"}, "int"),
        ({"batch_size": ""}, "int"),
        ({"rate": "fast"}, "float"),
        ({"precision": "fp8"}, "one of fp32, amp"),
    ],
)
def test_text_that_does_not_fit_names_the_knob_the_value_and_the_type(
    text: dict[str, str], expected: str
) -> None:
    ((name, value),) = text.items()
    assert failure(build, text).message == f"The knob {name!r} is {value!r}, expected {expected}."


@pytest.mark.parametrize(
    "values",
    [
        {"batch_size": True},
        {"batch_size": "8"},
        {"batch_size": 8.0},
        {"rate": True},
        {"precision": "fp8"},
        {"seq_len": None},
    ],
)
def test_python_values_are_checked_too(values: dict[str, object]) -> None:
    ((name, value),) = values.items()
    assert f"The knob {name!r} is {value!r}, expected" in failure(build, {}, **values).message


def test_a_whole_number_is_a_good_float() -> None:
    assert bound(build, {}, {"rate": 1})["rate"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "batch_size",
        "hidden_size",
        "seq_len",
        "max_length",
        "num_layers",
        "depth",
        "width",
        "heads",
        "layers",
    ],
)
@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_size_that_is_not_positive_is_refused(name: str, value: str) -> None:
    def anything(**knobs: int) -> None: ...

    assert (
        failure(anything, {name: value}).message
        == f"The knob {name!r} is {value}, expected 1 or more."
    )
    assert "expected 1 or more" in failure(anything, {}, **{name: int(value)}).message


def test_a_size_whose_own_default_is_zero_may_be_zero() -> None:
    def loader(*, num_workers: int = 0, seed: int = 1) -> None: ...

    assert bound(loader, {"num_workers": "0", "seed": "0"}, {}) == {
        "num_workers": 0,
        "seed": 0,
    }


def test_a_function_with_keyword_arguments_of_any_name_accepts_them() -> None:
    def anything(*, batch_size: int = 1, **rest: object) -> None: ...

    assert bound(anything, {"a": "1", "b": "0.5", "c": "yes", "d": "x"}, {"e": []}) == {
        "batch_size": 1,
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "x",
        "e": [],
    }


def test_a_positional_only_parameter_is_refused() -> None:
    def old(batch_size: int, /) -> None: ...

    error = failure(old, {"batch_size": "1"})
    assert "positional-only" in error.message and "'/'" in error.advice


def test_a_plain_parameter_is_a_knob_and_extra_positions_are_not() -> None:
    def plain(batch_size: int, *rest: int) -> None: ...

    assert bound(plain, {"batch_size": "2"}, {}) == {"batch_size": 2}
    assert "no knob 'rest'" in failure(plain, {"batch_size": "2", "rest": "1"}).message


def test_without_annotation_the_default_says_the_type() -> None:
    def guess(count=1, rate=0.5, flag=False, name="x", nothing=None, unknown=object()):  # type: ignore[no-untyped-def]  # noqa: B008
        ...

    text = {"count": "2", "rate": "2", "flag": "no", "name": "7", "nothing": "none", "unknown": "3"}
    assert bound(guess, text, {}) == {
        "count": 2,
        "rate": 2.0,
        "flag": False,
        "name": "7",
        "nothing": None,
        "unknown": 3,
    }
    error = failure(guess, {"count": "0.5"})
    assert "expected int" in error.message and "default count=1" in error.advice


def test_none_is_text_where_nothing_says_that_none_is_meant() -> None:
    def bare(a, b=None):  # type: ignore[no-untyped-def]
        ...

    assert bound(bare, {"a": "none", "b": "none"}, {}) == {"a": "none", "b": None}


def test_a_default_of_none_allows_none() -> None:
    def old_style(*, window: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert bound(old_style, {"window": "none"}, {}) == {"window": None}
    assert bound(old_style, {"window": "4"}, {}) == {"window": 4}
    assert bound(old_style, {}, {"window": None}) == {"window": None}


def test_an_annotation_that_cannot_be_evaluated_does_not_spoil_the_others() -> None:
    def partly(*, size: Unknown, count: Optional[int] = 3, thing: Unknown = 2) -> Unknown: ...  # noqa: UP045

    assert bound(partly, {"size": "5", "count": "none", "thing": "9"}, {}) == {
        "size": 5,
        "count": None,
        "thing": 9,
    }
    assert "int | none" in failure(partly, {"size": "5", "count": "x"}).message


def test_an_annotation_that_is_no_type_is_left_alone() -> None:
    def odd(*, a=None):  # type: ignore[no-untyped-def]
        ...

    odd.__annotations__["a"] = 5
    assert bound(odd, {"a": "1"}, {}) == {"a": 1}


def test_a_type_that_text_cannot_give_is_refused_as_text_only() -> None:
    def lists(*, sizes: list[int] = []) -> None: ...  # noqa: B006

    error = failure(lists, {"sizes": "[1]"})
    assert "'sizes' of type list[int] cannot be given as text ('[1]')" in error.message
    assert bound(lists, {}, {"sizes": [1]}) == {"sizes": [1]}


def test_partial_functions_classes_and_decorated_functions_have_knobs() -> None:
    class Builder:
        def __init__(self, *, batch_size: int = 8) -> None: ...

    @functools.wraps(build)
    def decorated(**knobs: Any) -> None: ...

    for function in (functools.partial(build, seq_len=4), Builder, decorated):
        assert bound(function, {"batch_size": "2"}, {})["batch_size"] == 2


def test_a_callable_without_a_readable_signature_is_refused() -> None:
    assert "cannot be read" in failure(type).message


def test_an_unknown_knob_is_answered_with_all_there_are() -> None:
    def shown(
        *, size: str, batch_size: int = 8, note: str = "", window: int | None = None
    ) -> None: ...

    advice = failure(shown, {"width": "3"}).advice
    assert advice == "Knobs of shown: size (required), batch_size=8, note='', window=None."


def test_a_text_is_python_s_own_because_torch_compile_gives_up_at_others() -> None:
    def takes(*, name: str = "", mode: Literal["a", "b"] = "a", other: Any = None) -> None: ...

    values = bound(takes, {"name": "x", "mode": "b", "other": "y"}, {})
    assert {type(value) for value in values.values()} == {str}
