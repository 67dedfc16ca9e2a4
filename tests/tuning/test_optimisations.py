"""The file of optimisations says what each changes and needs; they are chosen by name."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace

import pytest
from invented import MACHINE

from vramcast.errors import UsageError
from vramcast.records.machine import Machine
from vramcast.records.measurement import Device
from vramcast.tuning.optimisations import FILE, Optimisation, catalogue, chosen, missing_on
from vramcast.tuning.tune import baseline_of
from vramcast.workload import Text
from vramcast.workload.configuration import Configuration

CATALOGUE = catalogue()
BY_NAME = {one.name: one for one in CATALOGUE}


def test_every_optimisation_says_what_it_changes_and_names_are_unique() -> None:
    assert len(BY_NAME) == len(CATALOGUE) > 25
    for one in CATALOGUE:
        assert one.what and (one.changes or one.size or one.passes > 1 or one.is_half)
        assert all(change.settings() for change in one.changes), f"{one.name} changes nothing"
        assert one.loss_tolerance or one.size or one.is_half, (
            f"{one.name}: why are its losses not compared?"
        )


def test_the_file_has_no_misspelt_keys() -> None:
    """They would be ignored."""
    blocks = tomllib.loads(FILE.read_text())["optimisation"]
    assert {key for block in blocks for key in block} <= {
        each.name for each in fields(Optimisation)
    }
    kinds = {key for block in blocks for change in block.get("changes", []) for key in change}
    assert kinds == {"knobs", "switches", "allocator"}


def test_what_takes_long_to_start_comes_after_the_rest() -> None:
    slow = [one.start_seconds >= 30 for one in chosen(None)]
    assert not any(slow[:10]) and all(slow[-3:])


@pytest.mark.parametrize(
    ("name", "machine", "device", "words"),
    [
        (
            "amp-fp8",
            replace(MACHINE, capability=(8, 6)),
            "cuda",
            "needs compute capability 8.9, and the GPU has 8.6",
        ),
        (
            "compile",
            replace(MACHINE, triton=None, triton_error="No module named 'triton'"),
            "cuda",
            "Triton is not there: No module",
        ),
        ("compile", replace(MACHINE, compiler=None), "cuda", "no C compiler"),
        ("optimizer-8bit-bitsandbytes", MACHINE, "cuda", "pip install bitsandbytes"),
        ("cuda-graphs", Machine(), "cpu", "this run is on the CPU"),
        ("tf32", Machine(), "cpu", "this run is on the CPU"),
        ("tf32", MACHINE, "cuda", None),
        ("amp-fp8", MACHINE, "cuda", None),
        (
            "optimizer-8bit-bitsandbytes",
            replace(MACHINE, packages={"bitsandbytes": "0.50"}),
            "cuda",
            None,
        ),
    ],
)
def test_what_an_optimisation_asks_of_the_machine(
    name: str, machine: Machine, device: str, words: str | None
) -> None:
    found = missing_on(BY_NAME[name], machine, Device(device))
    assert found is None if words is None else found and words in found.sentence


def test_optimisations_are_chosen_by_name() -> None:
    assert [one.name for one in chosen("tf32, amp-bf16")] == ["amp-bf16", "tf32"]
    # advise alone knows the others
    assert chosen(None) == [one for one in CATALOGUE if not one.only_advised]
    for wrong in ("tf32,fast", " , "):
        with pytest.raises(UsageError, match="optimisation") as caught:
            chosen(wrong)
        assert "cuda-graphs" in caught.value.advice


def test_what_changes_the_training_may_do_so_if_it_is_asked_for_by_name() -> None:
    assert BY_NAME["seq-len"].changes_training
    assert not chosen("seq-len")[0].changes_training


def test_a_knob_that_only_text_can_carry_stays_in_the_configuration() -> None:
    """A dtype comes back from the workload as its text: it must be given as text again."""
    baseline = baseline_of(
        {"batch_size": Text("2"), "dtype": Text("bfloat16")},
        {"batch_size": 2, "dtype": "torch.bfloat16", "width": 8},
    )
    assert baseline.to_dict()["knobs"] == {"batch_size": 2}
    assert baseline.to_dict()["knobs_text"] == {"dtype": "bfloat16"}
    changed = baseline.with_change(Configuration(knobs={"dtype": "other"}))
    # a change takes the place of the text
    assert changed.to_dict()["knobs"]["dtype"] == "other" and not changed.to_dict()["knobs_text"]


def test_what_compiles_captures_graphs_or_has_8_bits_is_predicted_before_it_is_tried() -> None:
    words = ("compile", "cuda-graphs", "8bit", "fp8")
    asked = [o for o in chosen(None) if any(word in o.name for word in words)]
    assert len(asked) >= 7 and all(one.predicted for one in asked)
