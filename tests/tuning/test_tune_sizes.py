"""Which batch sizes a tune tries, and what it predicts before and after, on invented runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from invented import (
    OPTIMISATIONS,
    InventedRunner,
    predicted,
    prediction,
    run,
    step,
    whole,
)

from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Prediction
from vramcast.records.tune import Reason, TuneVerdict
from vramcast.reporting.showing import markdown_of
from vramcast.tuning.optimisations import Losses, Optimisation, knobs
from vramcast.tuning.predictions import batch_sizes
from vramcast.units import GiB
from vramcast.workload.configuration import Configuration

BATCH = Optimisation(
    name="batch-size",
    what="larger",
    size="batch_size",
    losses=Losses.NOT_COMPARED,
    predicted=True,
)


def by_batch(
    fixed: float, each: float, memory: Callable[[int], int]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def of(c: Configuration) -> tuple[int, float]:
        batch = c.knobs.get("batch_size", 4)
        return batch, fixed + each * batch

    def measured(c: Configuration) -> Measurement:
        batch, seconds = of(c)
        return run(seconds, knobs={"batch_size": batch, "seq_len": 16}, reserved=memory(batch))

    def foretold(c: Configuration) -> Prediction:
        batch, seconds = of(c)
        return prediction(
            memory(batch), seconds=seconds, knobs={"batch_size": batch, "seq_len": 16}
        )

    return measured, foretold


def test_the_batch_grows_to_the_knee_and_is_judged_by_throughput() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (2 + b) * GiB // 4))
    result = whole(runner, (BATCH,))
    assert result.total.by == "tokens a second"
    assert result.configuration["knobs"]["batch_size"] >= 80  # the knee is at 95
    assert result.after.work_per_step == 16 * result.configuration["knobs"]["batch_size"]
    assert any("losses of steps of other sizes cannot be compared" in note for note in result.notes)
    assert "of other data: not compared" in markdown_of(result, "log")


def test_a_batch_that_cannot_fit_is_not_run() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (20 + 5 * b) * GiB))
    whole(runner, (BATCH,))
    tried = {c.knobs.get("batch_size", 4) for c in runner.measured}
    assert max(tried) > 4 and all((20 + 5 * b) * GiB < 0.92 * 140 * GiB for b in tried)


def test_where_the_gpu_waits_for_the_host_the_batch_comes_first() -> None:
    runner = InventedRunner(*by_batch(0.5, 0.001, lambda b: (2 + b) * GiB // 4))
    result = whole(runner, (*OPTIMISATIONS[:2], BATCH), gpu=None)
    assert "batch_size" in runner.measured[2].knobs
    assert result.rows_with(TuneVerdict.APPLIED)[0].name.startswith("batch-size")


def test_what_was_slower_in_a_small_step_is_tried_again_in_a_larger_one() -> None:
    """Fewer bits cost the host time, and pay once the GPU is what is waited for."""
    amp = replace(OPTIMISATIONS[1], likely=True)

    def seconds(c: Configuration) -> float:
        batch, fast = c.knobs.get("batch_size", 4), c.knobs.get("precision") == "amp"
        return max(0.12 if fast else 0.1, (0.001 if fast else 0.002) * batch)

    def measured(c: Configuration) -> Measurement:
        return run(seconds(c), knobs={"batch_size": 4, "seq_len": 16, **c.knobs})

    def foretold(c: Configuration) -> Prediction:
        return prediction(GiB, seconds=seconds(c), knobs=dict(c.knobs))

    result = whole(InventedRunner(measured, foretold), (amp, BATCH), gpu=None)
    [row] = [row for row in result.rows if row.name == "amp"]
    assert row.alone and row.alone.verdict == "rejected" and "slower" in row.alone.reason
    assert row.verdict == "applied" and result.total.ratio == pytest.approx(
        0.1 / 4 / 0.001, rel=0.05
    )


def test_a_change_of_which_a_part_was_replaced_stays_with_the_rest() -> None:
    """Two knobs in one entry, of which a later one sets the first to something still faster."""
    both = Optimisation(
        name="both", what="", changes=(knobs(precision="amp", fused=True),), losses=Losses.ROUNDED
    )
    better = Optimisation(
        name="better", what="", changes=(knobs(precision="half"),), losses=Losses.ROUNDED
    )
    worse = Optimisation(
        name="worse", what="", changes=(knobs(precision="tf"),), losses=Losses.ROUNDED
    )

    def measured(c: Configuration) -> Measurement:
        fused = 0.5 if c.knobs.get("fused") and c.knobs.get("precision") in ("amp", "half") else 1.0
        precision = {"amp": 0.8, "half": 0.6, "tf": 0.9}.get(c.knobs.get("precision", ""), 1.0)
        return run(0.1 * fused * precision, knobs={"batch_size": 4, "seq_len": 16, **c.knobs})

    result = whole(InventedRunner(measured), (worse, both, better), gpu=None)
    assert result.configuration["knobs"] == {"precision": "half", "fused": True}
    assert result.total.ratio == pytest.approx(1 / 0.3, rel=0.02)
    assert [row.verdict for row in result.rows] == ["rejected", "applied", "applied"]


def test_where_no_larger_batch_fits_that_is_said() -> None:
    runner = InventedRunner(*by_batch(0.05, 0.01, lambda b: (100 + 8 * b) * GiB))
    [row] = whole(runner, (BATCH,)).rows
    assert (row.verdict, row.reason) == (
        "not applicable",
        "no other batch_size is worth trying, by prediction",
    )


def test_a_size_that_had_no_time_alone_is_one_row_on_top() -> None:
    """Sizes are chosen by prediction, and here that is slow: only on top of the others."""
    measured, foretold = by_batch(0.05, 0.01, lambda b: (2 + b) * GiB // 4)
    runner = InventedRunner(measured, foretold, budget=500.0)
    runner.seconds_to_predict = 30.0
    result = whole(runner, (replace(OPTIMISATIONS[0], predicted=True), BATCH), gpu=None)
    names = [row.name for row in result.rows]
    assert len(set(names)) == len(names) and "batch-size" not in names
    assert any(name.startswith("batch-size ") for name in names)


@pytest.mark.parametrize(
    ("here", "further", "expected"),
    [
        ("no GPU was named", "no GPU was named", [8, 16, 32]),
        (
            prediction(10 * GiB, seconds=0.1),
            prediction(80 * GiB, seconds=0.8),
            [14, 48],
        ),  # no fixed part
        (prediction(10 * GiB, seconds=0.1), prediction(24 * GiB, seconds=0.45), [72, 128, 224]),
        (
            prediction(10 * GiB, seconds=0.1),
            prediction(11 * GiB, seconds=0.45),
            [72, 128, 256],
        ),  # at most 64 times
        (prediction(130 * GiB, seconds=0.1), prediction(200 * GiB, seconds=0.8), []),
        (prediction(10 * GiB, seconds=None), prediction(80 * GiB, seconds=None), [14, 48]),
        (prediction(10 * GiB, seconds=0.1), prediction(10 * GiB, seconds=0.1), [32, 256]),
    ],
)
def test_sizes_worth_a_run(
    here: Prediction | str, further: Prediction | str, expected: list[int]
) -> None:
    assert batch_sizes(4, here, further) == expected


@pytest.mark.parametrize(("most_seconds", "expected"), [(0.5, [32]), (0.2, [12]), (0.105, [])])
def test_a_batch_whose_step_would_take_too_long_for_the_budget_is_not_tried(
    most_seconds: float, expected: list[int]
) -> None:
    found = batch_sizes(
        4, prediction(10 * GiB, seconds=0.1), prediction(17 * GiB, seconds=0.45), most_seconds
    )
    assert found == expected and all(0.05 + 0.0125 * size <= most_seconds for size in found)


def test_prospects_are_predicted_against_the_same_prediction_for_here() -> None:
    def foretold(c: Configuration) -> Prediction:
        return replace(predicted(c), step_seconds=0.05)  # type: ignore[type-var]

    result = whole(InventedRunner(step, foretold), OPTIMISATIONS[:1])
    assert {
        prospect.speedup for prospect in result.prospects if prospect.what.startswith("on ")
    } == {1.0}
    assert "on b200" in {prospect.what for prospect in result.prospects}
    assert not any(prospect.what == "on h200" for prospect in result.prospects)


def test_where_predicting_takes_long_and_time_is_short_things_are_just_tried() -> None:
    runner = InventedRunner(step, predicted, budget=400.0)
    runner.seconds_to_predict = 30.0
    chosen = (OPTIMISATIONS[0], BATCH, OPTIMISATIONS[6])  # attention, batch-size, unfit
    result = whole(runner, chosen, gpu=None)
    [unfit] = [row for row in result.rows if row.name == "unfit"]
    assert (
        unfit.verdict == "rejected" and unfit.alone and unfit.alone.missing_bytes == 2 * GiB
    )  # by running out of memory
    assert len(runner.predicted) <= 6


def test_what_takes_longer_to_start_than_to_predict_is_not_run_where_it_does_not_fit() -> None:
    runner = InventedRunner(step, predicted, budget=400.0)
    runner.seconds_to_predict = 30.0
    slow = replace(OPTIMISATIONS[6], start_seconds=40.0)  # unfit
    result = whole(runner, (OPTIMISATIONS[0], BATCH, slow), gpu=None)
    [unfit] = [row for row in result.rows if row.name == "unfit"]
    assert unfit.reason_code == Reason.PREDICTED_OUT_OF_MEMORY
    assert not any(c.knobs.get("keep") for c in runner.measured)


def test_the_memory_that_was_predicted_is_beside_the_measured() -> None:
    chosen = (replace(OPTIMISATIONS[0], predicted=True),)
    result = whole(InventedRunner(step, predicted), chosen)
    assert result.rows[0].alone and result.rows[0].alone.predicted_memory_bytes
    assert "(predicted " in markdown_of(result, "log")


def test_little_memory_left_is_a_reason_to_predict_before_trying() -> None:
    """Autocast after bfloat16 takes more memory: with little left it is predicted and not run."""
    optimisations = (
        Optimisation(name="other", what="fewer bits elsewhere", changes=(knobs(other=True),)),
    )

    def full(c: Configuration) -> Measurement:
        return replace(
            step(Configuration()), peak_reserved_bytes=100 * GiB, knobs={"batch_size": 4, **c.knobs}
        )

    runner = InventedRunner(
        full, lambda c: prediction(150 * GiB if c.knobs.get("other") else 100 * GiB)
    )
    [row] = whole(runner, optimisations).rows
    assert (
        row.verdict == "rejected"
        and "predicted not to fit" in row.reason
        and "10.00 GiB more than there is" in row.reason
    )
    assert not any(c.knobs.get("other") for c in runner.measured)
