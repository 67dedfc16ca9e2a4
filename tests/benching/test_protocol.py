"""A protocol is a value: the same values are the same protocol, and a wrong one is refused field by
field.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from vramcast.benching.protocol import (
    STANDARD_1,
    TIMEBOX_1,
    find_protocol,
    protocol_from,
    read_protocol,
    with_steps,
    within_documents,
)
from vramcast.errors import UsageError


def test_standard_1_is_document_002s_protocol_and_never_changes() -> None:
    assert (STANDARD_1.batch_size, STANDARD_1.seq_len, STANDARD_1.steps) == (256, 512, 1000)
    assert (STANDARD_1.optimizer, STANDARD_1.lr, STANDARD_1.weight_decay) == (
        "adamw-schedulefree",
        3e-4,
        0.1,
    )
    assert (STANDARD_1.precision, STANDARD_1.clip, STANDARD_1.seed, STANDARD_1.metric) == (
        "bf16",
        1.0,
        42,
        "Last100",
    )
    # a change of any of this is standard-2
    assert STANDARD_1.hash == "e7eab6600167d5d905f1af61bd9b1d60acfd66ae13a8bb6f65a97a4553120e33"
    assert TIMEBOX_1.hash == "ce34c6a1a3928b0b032816a37a409b03e06fde780c3d023abd696b9b0e2d0b13"


def test_the_time_boxed_protocol_has_600_seconds_and_the_largest_batch() -> None:
    assert (TIMEBOX_1.batch_size, TIMEBOX_1.steps, TIMEBOX_1.seconds) == (None, None, 600.0)


def test_a_name_without_its_version_means_the_newest() -> None:
    assert find_protocol("standard") is STANDARD_1
    assert find_protocol("timebox-1") is TIMEBOX_1


def test_the_hash_is_of_the_values_and_not_of_the_name() -> None:
    assert protocol_from({"name": "mine-1", "steps": 1000}).hash == STANDARD_1.hash
    assert with_steps(STANDARD_1, 200).hash != STANDARD_1.hash
    assert within_documents(STANDARD_1).hash != STANDARD_1.hash


def test_a_file_changes_only_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine-1"\nbatch_size = "largest"\nseconds = 30\n')
    protocol = read_protocol(file)
    assert (protocol.batch_size, protocol.steps, protocol.seconds, protocol.lr) == (
        None,
        None,
        30.0,
        3e-4,
    )


def test_a_changed_number_of_steps_shows_in_the_name() -> None:
    assert with_steps(STANDARD_1, 200).name == "standard-1/200-steps"


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("batch_size", 0, "`int` >= 1"),
        ("batch_size", "huge", "largest"),
        ("seq_len", 1.5, "`int`, got `float`"),
        ("steps", True, "got `bool`"),
        ("seconds", -1, "`float` > 0"),
        ("lr", float("nan"), "`float` > 0"),
        ("lr", 0, "For example lr = 0.0003"),
        ("weight_decay", "0.1", "`float`, got `str`"),
        ("optimizer", "adam", "adamw-schedulefree"),
        ("precision", "fp8", "amp-bf16"),
        ("precision", ["bf16"], "amp-bf16"),
        ("clip", -1.0, "`float` >= 0"),
        ("seed", -1, "`int` >= 0"),
        ("last_steps", 0, "`int` >= 1"),
        ("last_steps", 2000, "at least 2000 steps"),
        ("respect_documents", "yes", "For example respect_documents = false"),
        ("name", "", "no name"),
        ("name", "standard", "taken"),
        ("batchsize", 8, "Did you mean 'batch_size'"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_to_do(
    field: str, value: object, word: str
) -> None:
    with pytest.raises(UsageError) as caught:
        protocol_from({"name": "mine-1", field: value})
    assert field in caught.value.message.replace("metric Last2000", "last_steps")
    assert word in str(caught.value)
    assert caught.value.advice


def test_other_values_under_a_name_of_vramcasts_own_are_refused() -> None:
    with pytest.raises(UsageError, match="is taken"):
        protocol_from({"name": "standard-1", "lr": 1e-3})


def test_steps_and_seconds_together_are_refused() -> None:
    with pytest.raises(UsageError, match="both steps and seconds"):
        protocol_from({"name": "mine-1", "steps": 200, "seconds": 10})


def test_fewer_steps_than_the_metric_needs_are_refused() -> None:
    with pytest.raises(UsageError, match="Last100.*at least 100 steps, not 50"):
        with_steps(STANDARD_1, 50)


def test_a_file_that_is_missing_or_no_toml_or_nameless_is_refused(tmp_path: Path) -> None:
    bad, nameless = tmp_path / "bad.toml", tmp_path / "nameless.toml"
    endless = tmp_path / "endless.toml"
    bad.write_text("steps = = 3")
    endless.write_text(f"steps = {'9' * 5000}")
    nameless.write_text("steps = 300")
    for path, word in (
        (tmp_path / "none.toml", "cannot be read"),
        (bad, "not TOML"),
        (endless, "not TOML"),
        (nameless, "no name"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(UsageError, match=word):
            find_protocol(f"{path}/" if path == tmp_path else str(path))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="standard-1"):
        find_protocol("standart")
