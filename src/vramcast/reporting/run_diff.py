"""Two runs side by side, as a section."""

from collections.abc import Callable, Sequence
from typing import Any

from vramcast.records.prediction import CATEGORIES
from vramcast.records.run_diff import ComparedNumber, RunDiff, RunSide
from vramcast.reporting import sections as page

WORDS = {
    "peak_reserved_bytes": "peak reserved",
    "peak_allocated_bytes": "peak allocated",
    "process_bytes": "whole process",
    "capacity_bytes": "memory there is",
    "step_seconds": "one step",
    "step_seconds_low": "at least (90 %)",
    "step_seconds_high": "at most (90 %)",
    "num_parameters": "parameters",
    "num_alloc_retries": "allocator retries",
    "tokens_per_second": "tokens a second",
}


def of_run_diff(found: RunDiff) -> list[page.Section]:
    return [
        page.Section(
            kind="Difference",
            title=f"{found.a.name} and {found.b.name}",
            verdict=_verdict(found),
            text=[_side("A", found.a, found.knobs_a), _side("B", found.b, found.knobs_b)],
            parts=[
                page.limit("--fail-above", "B's peak", found.max_bytes, found.over_max_bytes),
                _table("Memory", found.totals_bytes, page.size),
                _table("Time", found.times_seconds, page.duration),
                _table("Beside that", found.others, lambda value: page.number(value, ",.0f")),
                _table("At the peak, by category", found.categories_bytes, page.size),
                _table("At the peak, by module", found.modules_bytes, page.size),
                _table("Largest tensors", found.tensors_bytes, page.size),
                _timelines(found),
            ],
        )
    ]


def _verdict(found: RunDiff) -> page.Remark:
    if found.same:
        return page.good("the same in everything that both have")
    peak = found.totals_bytes[0]
    if peak.a is None or peak.b is None:
        return page.Remark("they differ")
    more = peak.b - peak.a
    changed = f"{page.size(abs(int(more)))} {'more' if more > 0 else 'less'}"
    share = page.given(" ({})", page.percent(100 * more / peak.a, 1) if peak.a else None)
    return page.Remark(f"B reserves {changed}{share} at its peak" if more else "the same peak")


def _side(letter: str, side: RunSide, knobs: object) -> str:
    shown = page.knobs_of(knobs) if isinstance(knobs, dict) else ""
    facts = ", ".join(filter(None, (side.source, side.workload, side.gpu, shown)))
    return f"{letter}: {side.name} ({facts})"


def _table(
    title: str, numbers: Sequence[ComparedNumber], write: Callable[[Any], str]
) -> page.Table:
    shown = [one for one in numbers if one.a is not None or one.b is not None]
    return page.table_of(
        shown,
        {
            "": lambda one: WORDS.get(one.what, _name(one)),
            "A": lambda one: write(_whole(one.a)),
            "B": lambda one: write(_whole(one.b)),
            "B less A": lambda one: _less(one, write),
            "%": _percent,
        },
        left=("",),
        title=title,
        origin="as each side says",
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


def _timelines(found: RunDiff) -> page.Chart:
    layers = [
        page.Layer("step", f"{letter}: {side.name}", [list(p) for p in side.timeline], colour)
        for letter, side, colour in (("A", found.a, "s0"), ("B", found.b, "s1"))
    ]
    return page.chart(
        "Memory through both runs",
        "Allocated, over the share of the events of each run.",
        page.View(page.Axis("share of the run"), page.MEMORY_AXIS, layers),
    )
