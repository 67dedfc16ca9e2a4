"""Bars of memory: the capacity in every row, advice as steps down, GPUs, ranks, two runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_examples import PAGES, record

from vramcast.records.advice import Advice
from vramcast.records.prediction import FailedAllocation, Prediction, RankMemory
from vramcast.records.step_memory import MemorySegment, SegmentMap
from vramcast.reporting.html import as_html
from vramcast.reporting.sections import Chart, View
from vramcast.reporting.showing import make_report, sections_of
from vramcast.reporting.tensors import folded_modules


def chart(found: object, title: str) -> Chart:
    figures = [figure for section in sections_of(found) for figure in section.figures]
    (one,) = (figure for figure in figures if figure.title == title)
    assert isinstance(one, Chart)
    return one


def bars(view: View) -> dict[str, tuple[float, float]]:
    """By label; of stacked ones the last."""
    drawn = [layer for layer in view.layers if layer.kind == "bar"]
    points = sorted((point for layer in drawn for point in layer.points), key=lambda p: p[3])
    return {label: (begin, end) for label, begin, end, _ in points}


def limits(view: View) -> dict[str, float]:
    return {p[0]: p[1] for layer in view.layers if layer.kind == "limit" for p in layer.points}


def test_advice_goes_step_by_step_from_todays_peak_to_what_remains() -> None:
    advice = Advice.from_dict(record("advice.json"))
    view, every = chart(advice, "From today's peak down").views
    best = advice.suggestions[0]
    falls = list(bars(view).items())
    assert falls[0] == ("today", (0, advice.peak_reserved_bytes))
    assert falls[-1] == ("what remains", (0, best.peak_reserved_bytes))
    assert [name for name, _ in falls[1:-1]] == ["accumulate-8", "bf16"] == sorted(best.names)
    ends = [advice.peak_reserved_bytes, *(end for _, (_, end) in falls[1:-1])]
    assert [begin for _, (begin, _) in falls[1:-1]] == ends[:-1]
    assert ends[-1] == best.peak_reserved_bytes
    assert set(limits(view).values()) == {advice.capacity_bytes}
    assert bars(every)["accumulate-8"][1] == advice.alone[0].peak_reserved_bytes


def test_advice_that_helps_nothing_has_no_steps() -> None:
    advice = replace(Advice.from_dict(record("advice.json")), suggestions=[])
    titles = [figure.title for each in sections_of(advice) for figure in each.figures]
    assert "From today's peak down" not in titles


def test_every_gpu_has_its_own_capacity_and_a_bar_for_time_hours_and_cost() -> None:
    (section,) = make_report(PAGES["GPUs with their cost"]).sections
    (found,) = section.figures
    memory, *others = found.views
    assert [view.name for view in others] == ["time of a step", "hours", "cost"]
    cases = {case["gpu"]: case for case in record("gpus.json")["cases"]}
    assert limits(memory) == {name: case["capacity_bytes"] for name, case in cases.items()}
    colours = {p[0]: layer.colour for layer in memory.layers[:2] for p in layer.points}
    assert colours == {name: "good" if case["fits"] else "bad" for name, case in cases.items()}
    costs = {name: (0, case["cost"]) for name, case in cases.items() if case["cost"] is not None}
    assert bars(others[-1]) == costs and len(costs) == 2


def test_ranks_stand_side_by_side_those_alike_too() -> None:
    rank = RankMemory(rank=0, peak_allocated_bytes=5, peak_reserved_bytes=9, fits=True, alike=[2])
    other = replace(rank, rank=1, peak_reserved_bytes=5, alike=[])
    whole = replace(Prediction.from_dict(record("prediction.json")), ranks=[rank, other])
    (view,) = chart(whole, "Ranks side by side").views
    assert bars(view) == {"rank 0": (5, 9), "rank 1": (0, 5), "rank 2": (5, 9)}
    assert set(limits(view).values()) == {whole.capacity_bytes}


def test_where_memory_runs_out_is_a_line_in_both_charts_of_time() -> None:
    whole = Prediction.from_dict(record("prediction.json"))
    assert whole.step_memory is not None
    failure = FailedAllocation(
        tensor=whole.largest_tensors[0],
        phase="step 2",
        during="backward",
        free_bytes=0,
        fragmented_bytes=0,
        alive_bytes={},
        largest_alive=[],
        settings_that_fit=[],
        event=whole.step_memory.first_event + 10,
    )
    for title, event in (("through step 2", 10), ("through build and steps", failure.event)):
        failed = chart(replace(whole, failure=failure), f"Memory {title}")
        for view in failed.views:
            (line,) = (layer for layer in view.layers if layer.kind == "down")
            assert (line.name, line.points) == ("fails here: 3.07 GiB", [[event]])


def test_segments_that_are_alike_are_one_bar_and_free_memory_is_seen() -> None:
    same = MemorySegment(num_bytes=9, blocks=[("parameters", 4), ("", 5)])
    other = MemorySegment(num_bytes=3, blocks=[("parameters", 3)])
    layout = SegmentMap(
        segments=[same, same, other],
        num_segments=3,
        free_bytes=10,
        num_free=2,
        largest_free_bytes=5,
    )
    whole = replace(Prediction.from_dict(record("prediction.json")), segment_map=layout)
    found = chart(whole, "How the allocator's memory is cut up")
    assert "10 B is free in 2 pieces, the largest of 5 B." in found.caption
    parameters, free = found.views[0].layers
    assert (free.name, free.points) == ("free", [["1. (2 alike)", 4, 9, 1]])
    assert [point[:3] for point in parameters.points] == [["1. (2 alike)", 0, 4], ["2.", 0, 3]]


def test_two_runs_show_their_differences_first_and_their_memory_over_each_other() -> None:
    (section,) = make_report(PAGES["difference"]).sections
    page = as_html(make_report(PAGES["difference"]))
    assert 0 < page.index(">peak reserved<") < page.index("<figure")
    differences, timelines = section.figures
    change = bars(differences.views[0])["peak reserved"][1]
    total = record("run-diff.json")["totals_bytes"][0]
    assert change == total["b"] - total["a"] < 0
    # Both are of one workload, so they are named by the knob that differs.
    assert section.title == ("examples/gpt.py:build, checkpointing=False and checkpointing=True")
    assert [layer.name for layer in timelines.views[0].layers[:2]] == [
        "A: checkpointing=False",
        "B: checkpointing=True",
    ]
    assert [view.name for view in timelines.views] == ["the step with the peak", "the run"]
    for view in timelines.views:
        assert [layer.kind for layer in view.layers] == ["step", "step", "across"]


@pytest.mark.parametrize(
    ("modules", "named"),
    [
        (["blocks.0", "blocks.1", "blocks.11"], "blocks.0 to 11"),
        (["h.0.mlp", "h.3.mlp"], "h.0 to 3.mlp"),
        (["blocks.4"], "blocks.4"),
        (["a.0.b.0", "a.0.b.1"], "a.*.b.*"),
        ([""], ""),
    ],
)
def test_modules_that_differ_in_a_number_have_one_name(modules: list[str], named: str) -> None:
    assert folded_modules([*modules, "head"]) == {**dict.fromkeys(modules, named), "head": "head"}
