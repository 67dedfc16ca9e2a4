"""Advice as sections: what makes a workload fit, and what every change saves."""

from vramcast.records.advice import Advice, AdvisedChange
from vramcast.reporting import sections as page
from vramcast.reporting.advice_chart import steps_down
from vramcast.reporting.prediction import where_of

MOST_SHOWN = 8
SHOWN_IN_BRIEF = 3


def of_advice(advice: Advice) -> list[page.Section]:
    most = SHOWN_IN_BRIEF if advice.is_brief else MOST_SHOWN
    title = "What saves most" if advice.fits else "What makes it fit, cheapest first"
    first = page.Section(
        kind="Advice",
        title=f"what would make {advice.workload} fit" if advice.is_brief else advice.workload,
        knobs=None if advice.is_brief else advice.knobs,
        verdict=_verdict(advice),
        parts=[_table(advice.suggestions[:most], title), steps_down(advice)],
        notes=_notes(advice),
        made="" if advice.is_brief else page.predicted_with(advice),
    )
    if advice.is_brief:
        return [first]
    alone = page.Section(
        title="Every change alone",
        parts=[_table(advice.alone, "Every change alone, what saves most first", brief=True)],
    )
    refused = page.Section(
        title="What does not apply, or saves nothing here",
        parts=[
            page.table_of(
                advice.not_advised,
                {"change": "name", "why": "reason"},
                left=("change", "why"),
                title="Not advised",
                origin=page.PREDICTED,
                samples=page.count(len(advice.not_advised), "change"),
                detail=True,
            )
        ],
        detail=True,
    )
    return [first, alone, refused]


def _verdict(advice: Advice) -> page.Remark:
    needs = f"needs {page.size(advice.peak_reserved_bytes)}"
    where = ""
    if advice.capacity_bytes is not None:
        where = f" on {where_of(advice.gpu, advice.capacity_bytes)}"
    if advice.fits:
        return page.good(f"fits{where}: {needs}; these changes would save memory")
    sure = [one for one in advice.suggestions if not one.is_estimate]
    if not advice.suggestions:
        more = page.given("; --gpu all shows GPUs on which it would", advice.gpu)
        return page.bad(f"{needs}; no known change makes it fit{where}{more}")
    if not sure:
        return page.unsure(f"{needs}; no change that could be simulated makes it fit{where}")
    best = sure[0]
    return page.good(f"{' + '.join(best.names)} makes it fit{where}: {_cost(best)}")


def _cost(one: AdvisedChange) -> str:
    """A text such as "saves 17.46 GiB, 2 % more time"."""
    return f"saves {page.size(one.saved_bytes)}{page.given(', {} time', _time(one))}"


def _time(one: AdvisedChange) -> str:
    return page.percent(one.more_time_percent, 0) if one.more_time_percent is not None else ""


def _table(changes: list[AdvisedChange], title: str, brief: bool = False) -> page.Table:
    how = {"what and how": lambda one: "; ".join(one.what)} if brief else {"how": _how}
    training = {} if brief else {"training": lambda one: "; ".join(_training(one))}
    return page.table_of(
        changes,
        {
            "change": lambda one: " + ".join(one.names),
            "saves": lambda one: _about(one) + page.size(one.saved_bytes),
            "peak": lambda one: _about(one) + page.size(one.peak_reserved_bytes),
            "fits": lambda one: "yes" if one.fits else "no",
            "time": _time,
            "90 % within": lambda one: page.between(one.step_seconds_low, one.step_seconds_high),
            **how,
            **training,
        },
        left=("change", "training", "how", "what and how"),
        title=title,
        tones=[page.Tone.GOOD if one.fits else page.Tone.PLAIN for one in changes],
        origin="predicted; with ~ estimated",
        samples=page.count(len(changes), "change"),
    )


def _about(one: AdvisedChange) -> str:
    return "~" if one.is_estimate else ""


def _how(one: AdvisedChange) -> str:
    return "; ".join(one.how)


def _training(one: AdvisedChange) -> list[str]:
    """What the changes mean for the training, each thing once."""
    return list(dict.fromkeys(filter(None, one.training)))


def _notes(advice: Advice) -> list[str]:
    notes = []
    if len(advice.suggestions) > 1 and not (advice.fits or advice.is_brief):
        notes.append("changes that do not affect the training come first, then shorter steps")
    if any(one.is_estimate for one in (*advice.suggestions, *advice.alone)):
        notes.append(
            "~ marks an upper estimate: the workload has no knob for this, so it was not simulated"
        )
    if advice.is_brief:
        notes.append(f"all changes, alone and together: {advice.command}")
    return notes
