"""Advice as bars: from today's peak down to what fits, a step for each change."""

from collections.abc import Iterator, Mapping, Sequence

from vramcast.records.advice import Advice, AdvisedChange
from vramcast.reporting import sections as page

MOST_BARS = 16
TODAY, SAVED, ESTIMATED, LEFT = "today", "saved", "saved, estimated", "what remains"
COLOURS = {TODAY: "s7", SAVED: "good", ESTIMATED: "unsure", LEFT: "s0"}


def steps_down(advice: Advice) -> page.Chart | None:
    if not advice.suggestions:
        return None
    sure = [one for one in advice.suggestions if not one.is_estimate]
    return page.chart(
        "From today's peak down",
        "Predicted: the peak reserved by the allocator. A change's bar is what it takes off.",
        _view(advice, _waterfall(advice, [*sure, *advice.suggestions][0]), "step by step"),
        _view(advice, _side_by_side(advice), "every change"),
    )


def _view(advice: Advice, bars: Sequence[page.Bar], name: str) -> page.View:
    limits = {bar.label: advice.capacity_bytes for bar in bars}
    return page.bar_view(page.MEMORY_AXIS, bars, COLOURS, name, limits=limits)


def _waterfall(advice: Advice, best: AdvisedChange) -> list[page.Bar]:
    """Bars of one change on top of the other, as far as their combinations were predicted."""
    before = advice.peak_reserved_bytes
    bars = [page.Bar(TODAY, TODAY, 0, before, [page.size(before)])]
    for names, step in _steps(advice, best):
        after = step.peak_reserved_bytes
        bars.append(_fall(" + ".join(names), before, step))
        before = after
    return [*bars, page.Bar(LEFT, LEFT, 0, before, [page.size(before), _fits(best)])]


def _steps(advice: Advice, best: AdvisedChange) -> Iterator[tuple[list[str], AdvisedChange]]:
    """The names that each step adds, and the prediction with them. What saves most comes first."""
    known = [*advice.alone, *advice.suggestions]
    done: frozenset[str] = frozenset()
    while done != set(best.names):
        next_ones = [
            one
            for one in known
            if done < set(one.names) <= set(best.names) and one.is_estimate <= best.is_estimate
        ]
        step = min(next_ones, key=lambda one: (len(one.names), one.peak_reserved_bytes))
        yield [name for name in step.names if name not in done], step
        done = frozenset(step.names)


def _fall(label: str, before: int, step: AdvisedChange) -> page.Bar:
    after = step.peak_reserved_bytes
    details = [f"{page.size(before)} to {page.size(after)}", *step.what, *step.how]
    return page.Bar(ESTIMATED if step.is_estimate else SAVED, label, before, after, details)


def _fits(one: AdvisedChange) -> str:
    return "fits" if one.fits else "does not fit"


def _side_by_side(advice: Advice) -> list[page.Bar]:
    by_name: Mapping[str, AdvisedChange] = {
        " + ".join(one.names): one for one in (*advice.suggestions, *advice.alone)
    }
    today = advice.peak_reserved_bytes
    return [
        page.Bar(TODAY, TODAY, 0, today, [page.size(today)]),
        *(_fall(name, today, one) for name, one in [*by_name.items()][:MOST_BARS]),
    ]
