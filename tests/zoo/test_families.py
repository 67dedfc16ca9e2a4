"""Architectures of transformers: the table, and the rows that are made of it."""

from __future__ import annotations

from vramcast.suites.catalogue import SUITES
from vramcast_zoo.suites.families import BATCHES, TABLE, configuration


def test_every_architecture_is_a_row_in_single_precision_and_with_autocast() -> None:
    rows = [(row.knobs["family"], row.knobs.get("autocast", "")) for row in SUITES["families"]]
    assert rows == [(family, autocast) for family in TABLE["families"] for autocast in ("", "bf16")]


def test_every_architecture_has_a_kind_of_batch() -> None:
    assert {configuration(family)[1] for family in TABLE["families"]} == set(BATCHES)


def test_sizes_that_are_shared_can_be_changed_also_inside_a_configuration() -> None:
    name, kind, sizes = configuration("olmoe")
    assert (name, kind) == ("OlmoeForCausalLM", "next_token")
    assert (sizes["hidden_size"], sizes["intermediate_size"], "like" in sizes) == (512, 512, False)
    towers = configuration("siglip")[2]
    assert towers["text_config"]["vocab_size"] == 32000
    assert towers["vision_config"]["num_hidden_layers"] == 8
