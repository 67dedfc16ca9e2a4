"""A simulated run against the history recorded on an H200: not only the peaks, every allocation and
what is alive at each."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

import vramcast_zoo.suites
from vramcast.predicting.predict import predict
from vramcast.tracing.diff import diff_traces
from vramcast.tracing.files import read_trace
from vramcast.tracing.trace import Allocation, Trace

pytestmark = pytest.mark.usefixtures("warm_simulations")
RECORDING = Path(__file__).parents[1] / "allocator" / "recordings" / "gpt124m-amp-B8.json.gz"
GPT = Path(vramcast_zoo.suites.__file__).parent / "models.py"


def recorded(like: Trace) -> Trace:
    """The recording names no operators and marks no steps.

    It began behind the small tensor with which a simulation begins.
    """
    data = json.loads(gzip.decompress(RECORDING.read_bytes()))
    events = [1, -1, *(event + 1 if event > 0 else event - 1 for event in data["events"])]
    allocations = [like.allocations[0], *(Allocation(num_bytes, "") for num_bytes in data["sizes"])]
    return replace(like, source="measured", events=events, allocations=allocations, steps=[])


def test_every_allocation_of_three_steps_is_that_of_the_gpu(tmp_path: Path) -> None:
    predict(f"{GPT}:gpt", gpu="h200", autocast="bf16", trace=tmp_path)
    simulated = read_trace(tmp_path)
    begins_step_4 = [index for index, event in enumerate(simulated.events) if event == 0][3]
    simulated = replace(
        simulated, events=[event for event in simulated.events[:begins_step_4] if event], steps=[]
    )
    num_allocs = max(simulated.events)
    measured = recorded(simulated)
    measured = replace(
        measured, events=list(takewhile(lambda event: event <= num_allocs, measured.events))
    )
    result = diff_traces(simulated, measured)
    assert result.same, result.first
    assert result.a.num_allocations == result.b.num_allocations == num_allocs > 3000
