"""Why it does not fit: the allocation that fails, and what every step leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.allocator.settings import AllocatorSettings
from vramcast.forecast.budget import Budget
from vramcast.forecast.forecast import forecast
from vramcast.records.prediction import PhaseName, Prediction
from vramcast.reporting.failure import growth_lines, why_not
from vramcast.reporting.prediction import of_prediction
from vramcast.tracing.trace import Allocation, SimulatedRun

MiB = 1 << 20


def predicted(
    events: Sequence[int],
    sizes: Sequence[int],
    memory_bytes: int,
    settings: str = "",
    first_phase: str = "forward",
    segments: Sequence[PhaseName] = (),
) -> Prediction:
    """The n-th allocation is made by operator "op-n" at line n."""

    def allocation(number: int) -> Allocation:
        return Allocation(
            sizes[number - 1],
            f"aten::op_{number}",
            "activations",
            module="blocks.0",
            node="MulBackward0" if number == 3 else "",
            source=f"train.py:{number} in forward",
            shape=(sizes[number - 1] // 4,),
            dtype="float32",
            phase="backward" if number == 3 else first_phase,
        )

    run = SimulatedRun(
        events=list(events),
        sizes=list(sizes),
        categories=["activations"] * len(sizes),
        num_parameters=0,
        notes=(),
        torch_version="",
        allocation=allocation,
        segments=list(segments),
    )
    budget = Budget(
        gpu=None,
        memory_bytes=memory_bytes,
        settings=AllocatorSettings.parse(settings),
        settings_text=settings,
    )
    return forecast(run, budget, workload="w", knobs={})


# Between the two tensors that stay are 40 MiB in a piece of 60: the third does not find room.
HOLES = [0, 1, 2, -1, 4, 3]
HOLE_SIZES = [60 * MiB, 20 * MiB, 70 * MiB, 20 * MiB]


def test_the_allocation_that_fails_is_named_with_what_was_alive() -> None:
    found = predicted(HOLES, HOLE_SIZES, 120 * MiB)
    failure = found.failure
    assert failure is not None and not found.fits
    assert (failure.tensor.operator, failure.tensor.source) == (
        "aten::op_3 (MulBackward0)",
        "train.py:3 in forward",
    )
    assert (failure.tensor.num_bytes, failure.tensor.dtype) == (70 * MiB, "float32")
    assert (failure.phase, failure.during) == ("step 1", "backward")
    assert failure.event == HOLES.index(3)
    assert failure.alive_bytes == {"activations": 40 * MiB}
    assert (failure.free_bytes, failure.fragmented_bytes) == (40 * MiB, 40 * MiB)
    assert [one.num_bytes for one in failure.largest_alive] == [20 * MiB, 20 * MiB]
    layout = found.segment_map
    assert layout is not None
    assert [(one.num_bytes, one.blocks) for one in layout.segments] == [
        (60 * MiB, [("activations", 20 * MiB), ("", 40 * MiB)]),
        (20 * MiB, [("activations", 20 * MiB)]),
    ]
    assert (layout.free_bytes, layout.num_free, layout.largest_free_bytes) == (
        40 * MiB,
        1,
        40 * MiB,
    )
    assert Prediction.from_json(found.to_json()) == found
    (remark,) = why_not(found)
    assert "step 1, backward: 70.0 MiB for float32" in remark.text
    assert "train.py:3 in forward" in remark.text


def test_parts_of_a_step_are_not_said_of_an_evaluation() -> None:
    segments = [PhaseName.TRAIN, PhaseName.EVALUATE]
    found = predicted([0, 1, -1, 0, 2], [MiB, 90 * MiB], 60 * MiB, "", "update", segments)
    assert found.failure is not None
    assert (found.failure.phase, found.failure.during) == ("evaluate", "")
    assert why_not(found)[0].text.startswith("What fails, in evaluate: 90.0 MiB")


def test_a_setting_with_which_it_fits_is_said_only_where_it_does() -> None:
    found = predicted(HOLES, HOLE_SIZES, 120 * MiB)
    assert found.failure and "expandable_segments:True" in found.failure.settings_that_fit
    assert "expandable_segments:True would make it fit" in " ".join(why_not(found)[0].below)
    same = predicted(HOLES, HOLE_SIZES, 120 * MiB, "expandable_segments:True")
    assert same.fits and same.failure is None and why_not(same) == []
    small = predicted(HOLES, HOLE_SIZES, 100 * MiB)
    assert small.failure and small.failure.settings_that_fit == []
    assert "do not help" in " ".join(why_not(small)[0].below)


def test_memory_that_every_step_leaves_behind_is_said_with_its_line() -> None:
    # Every step leaves its second tensor.
    events = [0, 1, 2, -1, 0, 3, 4, -3, 0, 5, 6, -5, 0, 7, 8, -7]
    found = predicted(events, [20 * MiB, 2 * MiB] * 4, 101 * MiB)
    growth = found.growth
    assert growth is not None and found.fits
    assert (growth.bytes_per_step, growth.num_tensors_per_step) == (2 * MiB, 1)
    assert growth.tensors[0].source == "train.py:6 in forward"
    assert growth.num_steps_that_fit is not None and 4 < growth.num_steps_that_fit < 50
    (line,) = growth_lines(growth)
    assert "grows by 2.0 MiB a step" in line and "train.py:6" in line
    verdict = of_prediction(found)[0].verdict
    assert verdict and "at first, but memory grows and is full after about" in verdict.text


def test_what_is_made_again_in_every_step_does_not_grow() -> None:
    # Each step frees what the one before left: two are never alive at its end.
    events = [0, 1, 0, 2, -1, 0, 3, -2, 0, 4, -3]
    assert predicted(events, [20 * MiB] * 4, 200 * MiB).growth is None
    # Nor what the second step replaces once, as DDP does its buckets, nor what the first makes.
    events = [0, 1, 0, 2, -1, 0, 3, -3, 0, 4, -4]
    assert predicted(events, [20 * MiB, 20 * MiB, MiB, MiB], 200 * MiB).growth is None
    assert (
        predicted([0, 1, 2, -2, 0, 3, -3, 0, 4, -4, 0, 5, -5], [MiB] * 5, 99 * MiB).growth is None
    )
