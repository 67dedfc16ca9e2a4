"""`vramcast plan` on several numbers of GPUs, and which of them to take."""

from __future__ import annotations

from dataclasses import replace

import pytest

import vramcast
from vramcast.errors import UsageError
from vramcast.predicting.plan_worlds import Case, read_cases, read_deadline


def test_one_gpu_has_nothing_to_spread() -> None:
    assert read_cases(["h200"], "1,2", "ddp,fsdp2") == [
        Case("h200", 1),
        Case("h200", 2, "ddp"),
        Case("h200", 2, "fsdp2"),
    ]
    assert read_cases([], None, None) == [Case(None, 1)]


@pytest.mark.parametrize(
    ("sizes", "ways", "message"),
    [
        ("0", None, "a number of GPUs is from 1"),
        ("two", None, "not a list of numbers of GPUs"),
        ("", None, "not a list of numbers of GPUs"),
        ("1,2", "ddp,", "names no strategy"),
        (None, "ddp", "--strategies is for several GPUs"),
        (range(1, 99), None, "at most 64 are planned"),
    ],
)
def test_numbers_of_gpus_that_cannot_be_are_refused(sizes, ways, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        read_cases(["h200"], sizes, ways)


def test_a_deadline_is_a_time() -> None:
    assert read_deadline("7d") == 168
    with pytest.raises(UsageError, match="not a time"):
        read_deadline("soon")


def test_what_connects_one_gpu_is_not_asked() -> None:
    with pytest.raises(UsageError, match="--link is for several GPUs"):
        vramcast.plan("llama-300m", gpu="h200", link="pcie-5")


@pytest.mark.long
@pytest.mark.usefixtures("warm_simulations")
def test_more_gpus_take_less_time_and_the_cheapest_in_time_is_named() -> None:
    sizes = {"dim": 256, "depth": 2, "hidden": 512, "seq_len": 64, "precision": "bf16"}
    found = vramcast.plan(
        "llama-300m",
        gpu="rtx-4090",
        memory="1GiB",
        tokens="1B",
        tokens_per_step=4096,
        world_sizes=[1, 4],
        strategies="fsdp2",
        link="pcie-5",
        knobs=sizes,
    )
    alone, four = found.gpus
    assert (alone.world_size, four.world_size, four.strategy) == (1, 4, "fsdp2")
    assert alone.total_tokens == pytest.approx(four.total_tokens, rel=0.001)
    assert alone.total_hours and four.total_hours and four.gpu_hours
    assert four.gpu_hours == 4 * four.total_hours
    assert alone.stages[0].tokens_per_step == four.stages[0].tokens_per_step == 4096
    assert alone.efficiency == 1.0
    assert found.fewest is alone
    between = (alone.total_hours + four.total_hours) / 2
    faster, slower = sorted(found.gpus, key=lambda gpu: gpu.total_hours or 0)
    assert replace(found, deadline_hours=between).cheapest is faster
    assert not replace(found, deadline_hours=0.5 * (faster.total_hours or 0)).fits
