"""A tune as sections: the result, every candidate with its verdict, and how it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.reporting.sections import (
    MEASURED,
    NO_AXIS,
    PREDICTED,
    Axis,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    Tone,
    View,
    count,
    duration,
    knobs_of,
    number,
    size,
)
from vramcast.units import format_bytes, format_count, format_days, format_percent, format_seconds

COMPARED = ("optimisation", "on top of the others", "alone", "memory", "losses")
VERDICT_TABLES = {
    TuneVerdict.APPLIED: ("Applied", (*COMPARED, "what it changes")),
    TuneVerdict.REJECTED: ("Tested and rejected", (*COMPARED, "why")),
    TuneVerdict.FAILED: ("Failed", ("optimisation", "error", "likely cause")),
    TuneVerdict.NOT_APPLICABLE: ("Not applicable", ("optimisation", "why")),
    TuneVerdict.NOT_TRIED: ("Not tried", ("optimisation", "why")),
}


def of_tune(result: TuneResult) -> list[Section]:
    applied = result.rows_with(TuneVerdict.APPLIED)
    verdict = "nothing helped: the start is as fast as it gets with what was tried"
    if applied:
        total = result.total
        interval = ""
        if total.low is not None and total.high is not None:
            interval = f" (95 %: {total.low:.2f} to {total.high:.2f})"
        speed = f"{total.ratio:.2f} times as fast by {total.by}{interval}"
        verdict = f"✓ {speed}, measured from end to end"
    after = f", after {result.num_earlier_runs} runs of earlier calls"
    earlier = after if result.num_earlier_runs else ""
    return [
        Section(
            kind="Tuned",
            title=result.workload,
            subtitle=knobs_of(result.knobs),
            verdict=verdict,
            tone=Tone.GOOD if applied else Tone.UNSURE,
            text=_claims(result) if applied else [],
            figures=[_waterfall(result)] if applied else [],
            tables=[_sides(result), _facts(result)],
            notes=result.notes,
            made=f"Measured on {result.gpu or 'the CPU'} (torch {result.torch_version}) "
            f"in {duration(result.seconds)}{earlier}.",
        ),
        Section(title="What was tried", figures=_speedups(result), tables=_verdict_tables(result)),
        Section(
            title="What came out",
            text=["\n".join(result.python_lines)],
            tables=[_prospects(result)] if result.prospects else [],
        ),
        _method(result),
    ]


def _claims(result: TuneResult) -> list[str]:
    lines = []
    if result.product_of_alone is not None and len(result.rows_with(TuneVerdict.APPLIED)) > 1:
        product = f"{result.product_of_alone:.2f}"
        lines.append(f"Multiplying what each did alone would have claimed {product}.")
    if result.loss_difference is not None:
        off = format_percent(result.loss_difference)
        lines.append(f"Losses of the measured steps differ by at most {off}.")
    return lines


def _waterfall(result: TuneResult) -> Chart:
    """The time for the work of one step of the start. A change's bar goes from what it found to
    what it left."""
    rows = {row.name: row for row in result.rows}
    ranked = [rows[name] for name in result.step_order or result.applied_order if name in rows]
    start, end = result.before.step_seconds, result.seconds_after / result.target_steps
    bars, details, left = [], [], start
    for rank, row in enumerate(ranked, 1):
        before, left = left, left / _ratio(row)
        bars.append([row.name, left, before, rank])
        later = [] if row.verdict == TuneVerdict.APPLIED else [row.reason]
        faster = f"{_ratio(row):.2f} times as fast on top of the others"
        details.append([faster, row.change, *later])
    layers = [
        _bar("start", [["start", 0, start, 0]], "temporaries", [[duration(start)]]),
        _bar("what a change took off", bars, "activations", details),
        _bar("end, measured", [["end", 0, end, len(ranked) + 1]], "parameters", [[duration(end)]]),
    ]
    work = f"{result.before.work_per_step:,.0f} {result.before.unit}"
    x = Axis(label=f"time for {work}", unit="seconds")
    runs = (
        f"{count(result.before.num_runs, 'run')} of the start, {result.after.num_runs} of the end"
    )
    return Chart(
        title="From the start to the end",
        caption="Measured. Every bar is what a change took off on top of those above it; "
        f"the end is a run of its own. {runs}.",
        views=[View(x=x, y=NO_AXIS, layers=layers, pointer="point")],
    )


def _bar(
    name: str, points: Sequence[list[object]], colour: str, details: Sequence[list[str]]
) -> Layer:
    return Layer(kind="bar", name=name, points=points, colour=colour, details=details)


def _ratio(row: CandidateResult) -> float:
    tried = row.on_top or row.alone
    return tried.speedup.ratio if tried and tried.speedup else 1.0


def _sides(result: TuneResult) -> Table:
    names = ("a step", "a step is", "throughput", "memory", "loss, first to last")
    target = f"{result.target_steps:,} steps of the start"
    runs = f"{count(result.before.num_runs, 'run')} before, {result.after.num_runs} after"
    return Table(
        title="Before and after",
        columns=[Column("", left=True), *map(Column, (*names, target))],
        rows=[
            _side("before", result.before, result.seconds_before),
            _side("after", result.after, result.seconds_after),
        ],
        origin=MEASURED,
        samples=f"{runs}, each in a fresh process",
    )


def _side(name: str, side: MeasuredConfiguration, seconds: float) -> list[str]:
    losses = ""
    if side.first_loss is not None and side.last_loss is not None:
        losses = f"{side.first_loss:.4f} to {side.last_loss:.4f}"
    return [
        name,
        duration(side.step_seconds),
        f"{side.work_per_step:,.0f} {side.unit}",
        f"{side.per_second:,.0f} {side.unit}/s",
        size(side.memory_bytes),
        losses,
        format_days(seconds),
    ]


def _facts(result: TuneResult) -> Table:
    cuda = ""
    if result.cuda_version:
        cuda = f", CUDA {result.cuda_version}, driver {result.driver_version}"
    triton, system = result.machine.triton or "missing", result.machine.system
    parameters = "unknown"
    if result.num_parameters is not None:
        parameters = f"{result.num_parameters:,} ({format_count(result.num_parameters)})"
    memory = "all there is" if result.memory_bytes is None else format_bytes(result.memory_bytes)
    return Table(
        title="What was tuned",
        columns=[Column("", left=True), Column("", left=True)],
        rows=[
            ["made", f"{result.time_utc}: {result.command}"],
            ["parameters", parameters],
            ["hardware", result.gpu or "the CPU"],
            ["memory for the allocator", memory],
            ["software", f"torch {result.torch_version}{cuda}, Triton {triton}, {system}"],
        ],
        origin=MEASURED,
        samples="one tune",
        detail=True,
    )


def _speedups(result: TuneResult) -> list[Chart]:
    """Alone against the start, and on top of the others; coloured by the verdict."""
    alone = [(row, row.alone) for row in result.rows]
    on_top = [(row, row.on_top) for row in result.rows]
    views = [
        View(
            name=name,
            x=Axis(label="faster", unit="percent"),
            y=NO_AXIS,
            layers=layers,
            pointer="point",
        )
        for name, tried in (("alone", alone), ("on top of the others", on_top))
        if (layers := _speedup_layers(tried))
    ]
    caption = f"Measured, by turns with runs without the change. {_loss_movement(result)}"
    return [Chart(title="How much faster", caption=caption, views=views)] if views else []


def _speedup_layers(tried: Sequence[tuple[CandidateResult, TrialResult | None]]) -> list[Layer]:
    found = [(row, trial, trial.speedup) for row, trial in tried if trial and trial.speedup]
    ranked = list(enumerate(sorted(found, key=lambda each: -each[2].ratio)))
    layers = []
    for name, is_applied, colour in (("applied", True, "good"), ("rejected", False, "bad")):
        chosen = [
            (rank, row, trial, speedup)
            for rank, (row, trial, speedup) in ranked
            if (row.verdict == TuneVerdict.APPLIED) is is_applied
        ]
        points = [[row.name, 0, 100 * (s.ratio - 1), rank] for rank, row, _, s in chosen]
        details = [[str(speedup), trial.reason] for _, _, trial, speedup in chosen]
        layers += [_bar(name, points, colour, details)] if points else []
    return layers


def _verdict_tables(result: TuneResult) -> list[Table]:
    tables = []
    for verdict, (title, names) in VERDICT_TABLES.items():
        rows = result.rows_with(verdict)
        if not rows:
            continue
        tried = [trial for row in rows for trial in (row.alone, row.on_top) if trial is not None]
        runs = sum(trial.num_runs[1] for trial in tried if trial.num_runs)
        tables.append(
            Table(
                title=title,
                columns=[Column(name, left=True) for name in names],
                rows=[_cells(row) for row in rows],
                origin=MEASURED if runs else "not measured",
                samples=f"{count(runs, 'run')} with a change, beside those without"
                if runs
                else "no run",
            )
        )
    return tables


def _cells(row: CandidateResult) -> list[str]:
    """One row of the table it belongs to."""
    if row.verdict == TuneVerdict.FAILED:
        return [row.name, row.reason, row.likely_cause or "not recognised"]
    if row.verdict not in (TuneVerdict.APPLIED, TuneVerdict.REJECTED):
        return [row.name, row.reason]
    last = row.reason
    if row.verdict == TuneVerdict.APPLIED:
        caution = f". Caution: {row.caution}" if row.caution else ""
        last = f"{row.what} ({row.change}){caution}"
    return [row.name, _speedup(row.on_top), _speedup(row.alone), _memory(row), _losses(row), last]


def _speedup(trial: TrialResult | None) -> str:
    if trial is None:
        return "not measured"
    return str(trial.speedup) if trial.speedup is not None else trial.verdict


def _memory(row: CandidateResult) -> str:
    has_end = row.on_top is not None and row.on_top.memory_after_bytes is not None
    trial = row.on_top if has_end else row.alone
    if trial is None:
        return ""
    ends = (trial.memory_before_bytes, trial.memory_after_bytes)
    return " → ".join(format_bytes(end) for end in ends if end is not None)


def _losses(row: CandidateResult) -> str:
    if row.loss_tolerance is None:
        return "of other data: not compared"
    trials = [trial for trial in (row.alone, row.on_top) if trial is not None]
    known = [t.loss_difference for t in trials if t.loss_difference is not None]
    allowed = f"{format_percent(row.loss_tolerance)} allowed"
    return f"{format_percent(max(known))} off ({allowed})" if known else allowed


def _prospects(result: TuneResult) -> Table:
    names = ("step", "times as fast", "memory")
    return Table(
        title="What would help next",
        columns=[Column("change", left=True), *map(Column, names), Column("", left=True)],
        rows=[
            [
                p.what,
                duration(p.step_seconds),
                number(p.speedup, ".2f"),
                size(p.memory_bytes),
                p.reason,
            ]
            for p in result.prospects
        ],
        origin=PREDICTED,
        samples=count(len(result.prospects), "prediction"),
    )


def _method(result: TuneResult) -> Section:
    budget = ""
    if result.budget_seconds is not None:
        budget = f" of a budget of {format_seconds(result.budget_seconds)}"
    gates = (
        "Applied is what passes three gates: losses within the stated tolerance at every step, "
        f"a significant difference (p below {result.significance_level:g}), "
        f"and a gain of at least {100 * result.least_gain:g} %."
    )
    return Section(
        title="How it was measured",
        text=[
            "Every run is a fresh process with the same seed, baseline and candidate by turns "
            "(A B B A); a candidate that is behind in its first run is not run again. A run "
            "counts as the median of its steps. In brackets: the 95 % interval of the ratio.",
            f"{gates} {_loss_movement(result)}",
            "All numbers are of whole training steps; the total is over all runs of the start "
            f"({result.before.num_runs}) and of the end ({result.after.num_runs}). "
            f"It took {format_seconds(result.seconds)}{budget}.",
            f"final.json beside this log is the configuration: `{probe_command(result)}` runs "
            "it, `vramcast.load_configuration` loads it.",
        ],
        detail=True,
    )


def probe_command(result: TuneResult, file: str = "final.json") -> str:
    """As it can be pasted into a shell."""
    device = "" if result.gpu else " --device cpu"
    return f"vramcast probe {shlex.quote(result.workload)} --config {shlex.quote(file)}{device}"


def _loss_movement(result: TuneResult) -> str:
    """A few steps from the beginning hardly move the loss, which limits what the gate can see."""
    first, last = result.before.first_loss, result.before.last_loss
    moved = ""
    if first and last is not None:
        share = format_percent(abs(last - first) / abs(first))
        moved = f" (those of the start moved by {share} in the steps measured)"
    return (
        f"Losses of so few steps show gross errors{moved}, not whether a long run learns as well."
    )
