"""A compiled step says what torch.compile brings, when the peak is, and what is compiled again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.records.base import convert, parse_json
from vramcast.records.compiled import Compilation, Recompilation
from vramcast.records.prediction import BoundBy, Prediction
from vramcast.reporting.compiled import compiled_lines
from vramcast.reporting.prediction import of_prediction

RECORD = Path(__file__).parent / "records/prediction.json"
EAGER = convert(parse_json(RECORD.read_bytes(), "the record"), Prediction, "the record")


def compiled(**fields: Any) -> Prediction:
    known = Compilation(
        peak_is_in_first_step=False, cached_peak_reserved_bytes=EAGER.peak_reserved_bytes
    )
    return replace(EAGER, compilation=replace(known, **fields))


def test_an_eager_step_has_no_such_lines() -> None:
    assert compiled_lines(EAGER) == []


def test_what_it_saves_in_memory_and_adds_in_time_is_said() -> None:
    twice, half = 2 * EAGER.peak_reserved_bytes, (EAGER.step_seconds or 0) / 2
    lines = compiled_lines(compiled(eager_peak_reserved_bytes=twice, eager_step_seconds=half))
    assert "(it saves 50 %)" in lines[0] and "(it adds 100 %)" in lines[0]


def test_of_a_launch_line_it_is_said_how_to_see_it() -> None:
    assert "--no-compile" in compiled_lines(compiled())[0]


def test_when_the_peak_is_and_what_caches_change_is_said() -> None:
    assert "after the first step, also in a run that finds" in compiled_lines(compiled())[1]
    first = compiled(peak_is_in_first_step=True, cached_peak_reserved_bytes=1 << 30)
    assert "in the first step" in compiled_lines(first)[1]
    assert compiled_lines(first)[1].endswith("takes 1.00 GiB")


def test_it_is_said_where_only_one_of_both_runs_fits() -> None:
    larger = compiled(cached_peak_reserved_bytes=1 << 40, cached_fits=False)
    assert compiled_lines(larger)[1].endswith(", which does not fit")
    smaller = compiled(cached_peak_reserved_bytes=1 << 20, cached_fits=True)
    assert compiled_lines(smaller)[1].endswith("takes 1.0 MiB")
    assert compiled_lines(replace(smaller, fits=False))[1].endswith(", which fits")


def test_what_is_compiled_again_is_said_with_the_reason_and_how_often() -> None:
    again = [Recompilation(function=f"f{n}", reason="another size", count=n) for n in range(1, 8)]
    lines = compiled_lines(compiled(recompilations=again))[2:]
    assert lines[:2] == [
        "compiled again: f1: another size",
        "compiled again, 2 times: f2: another size",
    ]
    assert lines[-1] == "compiled again: 2 more, of other functions or for other reasons"


def test_only_a_step_that_is_not_compiled_is_advised_to_be() -> None:
    assert EAGER.step
    step = replace(EAGER.step, bound_by=BoundBy.LAUNCH)
    advice = [of_prediction(replace(p, step=step))[0].text[0] for p in (EAGER, compiled())]
    assert "torch.compile would help" in advice[0]
    assert "torch.compile would help" not in advice[1] and "reduce-overhead" in advice[1]
    has_graphs = replace(compiled(), step=step, breakdown_bytes={"private_pools": 1 << 20})
    assert "a larger batch would help" in of_prediction(has_graphs)[0].text[0]


def test_no_share_of_the_peak_rate_is_told_where_no_operations_are_counted() -> None:
    assert EAGER.step
    texts = [
        of_prediction(replace(EAGER, step=replace(EAGER.step, flops=flops)))[0].text[0]
        for flops in (1e12, 0.0)
    ]
    assert ["peak rate" in text for text in texts] == [True, False]
