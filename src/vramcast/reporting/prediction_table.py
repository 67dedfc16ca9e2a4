"""Predictions of one workload for several GPUs or several values of knobs, as a section."""

from collections import Counter
from collections.abc import Sequence

from vramcast.records.prediction import PredictedCase, PredictionTable
from vramcast.records.sensitivity import KnobEffect, Sensitivity
from vramcast.reporting import sections as page

MAX_ERRORS = MAX_LIMITS = 3
COLOURS = {"predicted": "s0", "fits": "good", "does not fit": "bad"}
MORE, LESS = "more", "less"
COST = "cost is hours times the price; it is empty if no price was given"


def of_table(table: PredictionTable) -> list[page.Section]:
    return [
        page.Section(
            kind="Predicted",
            title=table.workload,
            knobs=table.knobs,
            verdict=_verdict(table),
            parts=[_rows(table), _chart(table)],
            notes=[*_errors(table), _compared(table)],
            limits=_limits(table),
            made=page.predicted_with(table),
        )
    ]


def _verdict(table: PredictionTable) -> page.Remark:
    cases = table.cases
    if all(case.capacity_bytes is None for case in cases):
        return page.Remark(f"{page.count(len(cases), 'prediction')}; no memory size was given")
    fitting = [case for case in cases if case.fits]
    if not fitting:
        return page.bad(f"none of {len(cases)} fits")
    text = f"{len(fitting)} of {len(cases)} fit"
    timed = [case for case in fitting if case.step_seconds is not None]
    priced = [case for case in fitting if case.cost is not None]
    if priced:
        best = min(priced, key=lambda case: case.cost or 0.0)
        text += f"; the cheapest is {best.cost:,.2f} in {hours(best.hours)} hours, {_name(best)}"
    elif len(timed) > 1:
        fastest = min(timed, key=lambda case: case.step_seconds or 0.0)
        text += f"; the shortest step is {page.duration(fastest.step_seconds)}, {_name(fastest)}"
    return page.good(text) if len(fitting) == len(cases) else page.unsure(f"✓ {text}")


def _name(case: PredictedCase) -> str:
    where = f"on {case.gpu}" if case.gpu else ""
    knobs = page.knobs_of(case.knobs)
    return " ".join(filter(None, (page.given("with {}", knobs), where)))


def _rows(table: PredictionTable) -> page.Table:
    varied = {
        name: lambda case, name=name: page.given("{}", case.knobs.get(name)) for name in table.vary
    }
    changes = {
        "change": lambda case: _signed_size(case.more_bytes, "+"),
        "%": lambda case: page.percent(case.more_percent, 1),
    }
    is_limited = any(case.capacity_bytes is not None for case in table.cases)
    is_of_training = table.tokens is not None or table.train_steps is not None
    between = {} if is_of_training else {"free": lambda case: _signed_size(case.headroom_bytes)}
    batch = {} if "batch_size" in table.vary else {"batch": "batch_size"}
    return page.table_of(
        table.cases,
        {
            **({"GPU": lambda case: case.gpu or ""} if len(table.gpus) > 1 else {}),
            **varied,
            "fits": lambda case: _fits(case) if is_limited else page.given("failed", case.error),
            **(batch if len(table.gpus) > 1 else {}),
            "peak": "peak_reserved_bytes",
            **(changes if table.vary else between),
            "step": "step_seconds",
            "90 % within": lambda c: page.between(c.step_seconds_low, c.step_seconds_high),
            **(_training_cells(table) if is_of_training else {}),
        },
        left=("GPU", *table.vary),
        title="Predictions",
        tones=[_tone(case, is_limited) for case in table.cases],
        origin=page.PREDICTED,
        samples=page.count(len(table.cases), "prediction"),
    )


def _training_cells(table: PredictionTable) -> dict[str, page.Cell]:
    has_tokens = any(case.tokens_per_second is not None for case in table.cases)
    rate = (
        {"tok/s": "tokens_per_second:,.0f"} if has_tokens else {"smp/s": "samples_per_second:,.3g"}
    )
    return {
        **rate,
        "hours": lambda case: hours(case.hours),
        "cost": lambda case: page.number(case.cost, ",.2f"),
    }


def hours(value: float | None) -> str:
    return page.number(value, ",.2f" if value is not None and value < 10 else ",.0f")


def _fits(case: PredictedCase) -> str:
    if case.error:
        return "failed"
    return ("yes, slow" if case.num_alloc_retries else "yes") if case.fits else "no"


def _tone(case: PredictedCase, is_limited: bool) -> page.Tone:
    is_bad = case.error or (is_limited and not case.fits)
    return page.Tone.BAD if is_bad else page.Tone.PLAIN


def _signed_size(num_bytes: int | None, plus: str = "") -> str:
    if num_bytes is None:
        return ""
    sign = "-" if num_bytes < 0 else plus if num_bytes else ""
    return f"{sign}{page.size(abs(num_bytes))}"


def _compared(table: PredictionTable) -> str:
    first = next((case for case in table.cases if case.more_bytes == 0), None)
    slow = any(case.fits and case.num_alloc_retries for case in table.cases)
    notes = []
    if table.vary and first is not None:
        notes.append(f"change compares each peak with the first that was asked for, {_name(first)}")
    length = page.given("{:,} steps", table.train_steps)
    if table.tokens is not None:
        has_tokens = any(case.tokens_per_second is not None for case in table.cases)
        length = f"{page.amount(table.tokens)} {'tokens' if has_tokens else 'samples'}"
    if length:
        notes.append(f"hours are for {length}; they are as uncertain as the step time")
    if table.prices:
        notes.append(COST)
    if slow:
        notes.append('"slow" means that the allocator has to empty its cache')
    return "; ".join(notes)


def _errors(table: PredictionTable) -> list[str]:
    """One line for each kind of error."""
    failed = [case for case in table.cases if case.error]
    kinds = Counter(case.error for case in failed)
    example = {case.error: _name(case) for case in reversed(failed)}
    shown = [
        f"{example[error]}{f' and {num - 1} more' if num > 1 else ''}: {' '.join(error.split())}"
        for error, num in kinds.most_common(MAX_ERRORS)
    ]
    left = len(kinds) - len(shown)
    return [*shown, *([f"{left} other errors are in --json"] if left > 0 else [])]


def _limits(table: PredictionTable) -> list[str]:
    """Each limit once. Limits of some cases only are shortened to a few, with the names of the
    cases."""
    found: dict[str, list[PredictedCase]] = {}
    for case in table.cases:
        for limit in case.limits:
            found.setdefault(limit, []).append(case)
    num_made = sum(not case.error for case in table.cases)
    of_all = [limit for limit, cases in found.items() if len(cases) == num_made]
    others = [f"{_some(cases)}: {limit}" for limit, cases in found.items() if limit not in of_all]
    left = len(others) - MAX_LIMITS
    more = [f"{left} more, each for some of these: --json has them"] if left > 0 else []
    return [*of_all, *others[:MAX_LIMITS], *more]


def _some(cases: list[PredictedCase]) -> str:
    names = list(dict.fromkeys(_name(case) for case in cases))
    if all(name.startswith("on ") for name in names):  # say "on" only once
        names[1:] = [name.removeprefix("on ") for name in names[1:]]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _chart(table: PredictionTable) -> page.Chart | None:
    made = [case for case in table.cases if case.peak_reserved_bytes is not None]

    def view(name: str, field: str, axis: page.Axis, *details: page.Cell) -> page.View:
        bars = [
            page.Bar(
                _of_colour(case),
                _label(case, len(table.gpus)),
                0,
                getattr(case, field),
                [*filter(None, (page.written(detail, case) for detail in (field, *details)))],
            )
            for case in made
            if getattr(case, field) is not None
        ]
        is_memory = axis is page.MEMORY_AXIS
        rows = [(_label(case, len(table.gpus)), case.capacity_bytes) for case in made]
        limits = dict(rows if is_memory else [])
        return page.bar_view(axis, bars, COLOURS, name, limits=limits)

    return page.chart(
        "GPUs" if len(table.gpus) > 1 else "Memory and time",
        "Predicted. Memory is the peak that the allocator reserves; hours and cost are of the "
        "whole training.",
        view("memory", "peak_reserved_bytes", page.MEMORY_AXIS, _room),
        view("time of a step", "step_seconds", page.Axis("time of a step", "seconds"), _within),
        view("hours", "hours", page.Axis("hours")),
        view("cost", "cost", page.Axis("cost"), lambda case: f"{hours(case.hours)} hours"),
    )


def _of_colour(case: PredictedCase) -> str:
    if case.capacity_bytes is None:
        return "predicted"
    return "fits" if case.fits else "does not fit"


def _label(case: PredictedCase, num_gpus: int) -> str:
    """The text that tells the bars apart."""
    knobs = page.knobs_of(case.knobs)
    gpu = case.gpu or "the given memory"
    return f"{knobs} {gpu}".strip() if num_gpus > 1 or not knobs else knobs


def _room(case: PredictedCase) -> str:
    if case.capacity_bytes is None:
        return ""
    return f"of {page.size(case.capacity_bytes)}: {_signed_size(case.headroom_bytes)} free"


def _within(case: PredictedCase) -> str:
    return page.between(case.step_seconds_low, case.step_seconds_high)


def of_sensitivity(found: Sensitivity) -> list[page.Section]:
    made = [one for one in found.effects if not one.error]
    ranked = sorted(made, key=lambda one: -(one.more_reserved_bytes or 0))
    failed = [one for one in found.effects if one.error]
    peak = page.size(found.peak_reserved_bytes)
    return [
        page.Section(
            kind="Sensitivity",
            title=found.workload,
            knobs=found.knobs,
            verdict=page.Remark(_in_words(found)),
            parts=[
                page.table_of(
                    ranked,
                    {
                        "knob": "knob",
                        "from": "value:,",
                        "to": "other_value:,",
                        "reserved": lambda one: _signed_size(one.more_reserved_bytes, "+"),
                        "allocated": lambda one: _signed_size(one.more_allocated_bytes, "+"),
                        "step": lambda one: _signed_time(one.more_seconds),
                    },
                    left=("knob",),
                    title=f"One knob at a time, from a peak of {peak}",
                    origin=page.PREDICTED,
                    samples=page.count(len(ranked) + 1, "prediction"),
                ),
                _effects_chart(ranked),
            ],
            notes=[f"{one.knob}={one.other_value}: {one.error}" for one in failed],
            made=page.predicted_with(found),
        )
    ]


def _effects_chart(effects: Sequence[KnobEffect]) -> page.Chart:
    def view(name: str, field: str, axis: page.Axis) -> page.View:
        bars = [
            page.Bar(MORE if change > 0 else LESS, _step_of(one), 0, change, [_step_of(one)])
            for one in effects
            if (change := getattr(one, field))
        ]
        return page.bar_view(axis, bars, {MORE: "bad", LESS: "good"}, name)

    return page.chart(
        "What one step of a knob changes",
        "Predicted, one knob at a time. A knob that changes nothing is left out.",
        view("memory", "more_reserved_bytes", page.Axis("change of the peak", "bytes")),
        view("time of a step", "more_seconds", page.Axis("change of a step's time", "seconds")),
    )


def _step_of(one: KnobEffect) -> str:
    return f"{one.knob} {one.value} to {one.other_value}"


def _in_words(found: Sensitivity) -> str:
    """The effect of the two sizes that people change most, where they are knobs."""
    by_name = {one.knob: one for one in found.effects if one.more_reserved_bytes is not None}
    nouns = {"batch_size": "sample", "seq_len": "token"}
    said = [
        f"{page.count(one.other_value - one.value, noun).replace(' ', ' more ', 1)}: "
        f"{_signed_size(one.more_reserved_bytes, '+')}"
        for name, noun in nouns.items()
        if (one := by_name.get(name))
    ]
    return "; ".join([f"peak {page.size(found.peak_reserved_bytes)}", *said])


def _signed_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{'+' if seconds > 0 else ''}{page.duration(seconds)}"
