"""What a run tells its parent arrives as it was told, and nothing else is believed."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from vramcast.hardware.nvml import MemorySource
from vramcast.probing.facts import Facts, Phase, Reporter, Step
from vramcast.records.measurement import Memory, MemoryOf, Outcome

PEAKS = Memory(allocated_bytes=3, reserved_bytes=4)


def told(reporter: Reporter) -> None:
    reporter.tell(phase=Phase.LOADING)
    reporter.tell(
        knobs={"batch_size": 4, "lr": 0.1, "name": "x", "fused": True, "none": None},
        warm=PEAKS,
        process_source=MemorySource.DEVICE,
        out_of_memory_on=MemoryOf.GPU,
        outside_bytes=-5,  # others gave memory back meanwhile
    )
    reporter.step(False, 2.0, math.inf)
    reporter.step(True, 1.0, None)
    reporter.tell(outcome=Outcome.CRASHED)


def test_facts_and_steps_arrive_as_they_were_told_also_infinite_losses() -> None:
    parent = Reporter(lambda _: None)
    run = Reporter(lambda news: parent.hear(json.loads(json.dumps(news))))
    told(run)
    assert parent.facts == run.facts
    assert parent.facts.warm == PEAKS and parent.facts.phase is Phase.LOADING
    assert parent.facts.losses == [math.inf, None]


def test_nan_arrives_as_nan() -> None:
    _, _, loss = msgspec.convert(json.loads(json.dumps([True, 1.0, math.nan])), Step)
    assert math.isnan(loss or 0.0)


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "text",
        {"outcome": "splendid"},
        {"gpu": 3},
        {"capacity_bytes": -1},
        {"warm": {"allocated_bytes": 1}},
        {"losses": "nan"},
        {"losses": ["much"]},
        {"knobs": {"a": []}},
        {"phase": None},
    ],
)
def test_what_no_run_tells_is_refused_and_changes_nothing(message: Any) -> None:
    reporter = Reporter(lambda _: None)
    reporter.tell(gpu="NVIDIA H200")
    with pytest.raises(msgspec.ValidationError):
        reporter.hear({"facts": message})
    assert reporter.facts == Facts(gpu="NVIDIA H200")


def test_a_fact_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="splendour"):
        Reporter(lambda _: None).tell(splendour=1)


@pytest.mark.parametrize("message", [None, {}, [], [1, 1.0, None], [True, 1.0], [True, -1.0, None]])
def test_half_a_step_is_refused(message: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(message, Step)
