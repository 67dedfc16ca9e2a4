"""Two runs side by side, as a section."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vramcast.records.prediction import CATEGORIES
from vramcast.records.run_diff import ComparedNumber, RunDiff, RunSide
from vramcast.reporting import sections as page
from vramcast.reporting.step_chart import capacity_of

MORE, LESS = "B takes more", "B takes less"
COLOURS = {MORE: "bad", LESS: "good"}
WORDS = {
    "peak_reserved_bytes": "peak reserved",
    "peak_allocated_bytes": "peak allocated",
    "process_bytes": "whole process",
    "capacity_bytes": "capacity",
    "step_seconds": "step time",
    "step_seconds_low": "step time, low (90 %)",
    "step_seconds_high": "step time, high (90 %)",
    "num_parameters": "parameters",
    "num_alloc_retries": "allocator retries",
    "tokens_per_second": "tokens a second",
}


def of_run_diff(found: RunDiff) -> list[page.Section]:
    return [
        page.Section(
            kind="Difference",
            title=_title(found),
            verdict=_verdict(found),
            text=[_side("A", found.a, found.knobs_a), _side("B", found.b, found.knobs_b)],
            parts=[
                page.limit("--fail-above", "B's peak", found.max_bytes, found.over_max_bytes),
                _table(found, "Memory", found.totals_bytes, page.size),
                _differences(found),
                _timelines(found),
                _table(found, "Time", found.times_seconds, page.duration),
                _table(
                    found, "Other numbers", found.others, lambda value: page.number(value, ",.0f")
                ),
                _table(found, "At the peak, by category", found.categories_bytes, page.size),
                _table(found, "At the peak, by module", found.modules_bytes, page.size),
                _table(found, "Largest tensors", found.tensors_bytes, page.size),
            ],
        )
    ]


def _verdict(found: RunDiff) -> page.Remark:
    if found.same:
        return page.good("the same in everything that both have")
    peak = next(iter(found.totals_bytes), None)
    if peak is None or peak.a is None or peak.b is None:
        return page.Remark("they differ")
    more = peak.b - peak.a
    changed = f"{page.size(abs(int(more)))} {'more' if more > 0 else 'less'}"
    share = page.given(" ({})", page.percent(100 * more / peak.a, 1) if peak.a else None)
    return page.Remark(f"B reserves {changed}{share} at its peak" if more else "the same peak")


def _names(found: RunDiff) -> tuple[str, str]:
    """Names that tell the two runs apart."""
    if found.a.name != found.b.name:
        return found.a.name, found.b.name
    knobs = page.knobs_of(found.knobs_a), page.knobs_of(found.knobs_b)
    return knobs if all(knobs) else (found.a.gpu or found.a.name, found.b.gpu or found.b.name)


def _title(found: RunDiff) -> str:
    both = " and ".join(_names(found))
    return both if found.a.name != found.b.name else f"{found.a.name}, {both}"


def _side(letter: str, side: RunSide, knobs: Mapping[str, Any]) -> str:
    workload = side.workload if side.workload != side.name else ""
    facts = ", ".join(filter(None, (side.source, workload, side.gpu, page.knobs_of(knobs))))
    return f"{letter}: {side.name} ({facts})"


def _table(
    found: RunDiff, title: str, numbers: Sequence[ComparedNumber], write: Callable[[Any], str]
) -> page.Table:
    shown = [one for one in numbers if one.a is not None or one.b is not None]
    return page.table_of(
        shown,
        {
            "": lambda one: WORDS.get(one.what, _name(one)),
            "A": lambda one: write(_whole(one.a)),
            "B": lambda one: write(_whole(one.b)),
            "change": lambda one: _less(one, write),
            "%": _percent,
        },
        left=("",),
        title=title,
        origin=f"A {found.a.source}, B {found.b.source}",
        samples=page.count(len(shown), "number"),
    )


def _name(one: ComparedNumber) -> str:
    return one.what.replace("_", " ") if one.what in CATEGORIES else one.what


def _percent(one: ComparedNumber) -> str:
    if not one.a or one.b is None:
        return ""
    return page.percent(100 * (one.b - one.a) / one.a, 1)


def _whole(value: float | None) -> Any:
    return int(value) if value is not None and value == int(value) else value


def _less(one: ComparedNumber, write: Callable[[Any], str]) -> str:
    if one.a is None or one.b is None:
        return ""
    more = one.b - one.a
    return f"{'-' if more < 0 else '+' if more else ''}{write(_whole(abs(more)))}"


def _differences(found: RunDiff) -> page.Chart:
    def view(name: str, numbers: Sequence[ComparedNumber]) -> page.View:
        both = [
            one for one in numbers if one.a is not None and one.b is not None and one.a != one.b
        ]
        bars = [
            page.Bar(
                MORE if _change(one) > 0 else LESS,
                WORDS.get(one.what, _name(one)),
                0,
                _change(one),
                [f"A {page.size(int(one.a or 0))}, B {page.size(int(one.b or 0))}", _percent(one)],
            )
            for one in both
        ]
        return page.bar_view(page.Axis("change from A to B", "bytes"), bars, COLOURS, name)

    return page.chart(
        "What differs",
        "The change from A to B. What is the same in both is left out.",
        view("totals", [one for one in found.totals_bytes if one.what != "capacity_bytes"]),
        view("at the peak, by category", found.categories_bytes),
        view("by module", found.modules_bytes),
    )


def _change(one: ComparedNumber) -> float:
    return (one.b or 0) - (one.a or 0)


def _timelines(found: RunDiff) -> page.Chart:
    """The memory of both runs over each other."""
    names = _names(found)
    sides = (("A", names[0], found.a, "s0"), ("B", names[1], found.b, "s1"))
    numbers = {one.what: one for one in found.totals_bytes}
    capacity = numbers.get("capacity_bytes")
    top = max((b for _, _, side, _ in sides for _, b in (*side.timeline, *side.step)), default=0)
    known = capacity.b if capacity and capacity.a == capacity.b else None
    line, far = capacity_of(None if known is None else int(known), top)

    def view(share: str, field: str) -> page.View:
        layers = [
            page.Layer("step", f"{letter}: {name}", [*map(list, getattr(side, field))], colour)
            for letter, name, side, colour in sides
        ]
        drawn = [*layers, line] if any(one.points for one in layers) else []
        return page.View(page.Axis(share), page.MEMORY_AXIS, drawn, share.removeprefix("share of "))

    return page.chart(
        "Memory through both runs",
        f"Allocated, over the share of the events of each.{far}",
        view("share of the step with the peak", "step"),
        view("share of the run", "timeline"),
    )
