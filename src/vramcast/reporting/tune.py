"""A tune as sections: the result, every candidate with its verdict, and how it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.reporting import sections as page
from vramcast.units import format_bytes, format_days, format_percent


def of_tune(result: TuneResult) -> list[page.Section]:
    applied = result.rows_with(TuneVerdict.APPLIED)
    verdict = page.unsure("nothing helped: the start is as fast as it gets with what was tried")
    if applied:
        total = result.total
        high = page.given("{:.2f}", total.high)
        interval = page.given(f" (95 %: {{:.2f}} to {high})", total.low)
        speed = f"{total.ratio:.2f} times as fast by {total.by}{interval}"
        verdict = page.good(f"{speed}, measured from end to end")
    after = page.given(", after {} runs of earlier calls", result.num_earlier_runs or None)
    return [
        page.Section(
            kind="Tuned",
            title=result.workload,
            knobs=result.knobs,
            verdict=verdict,
            text=_claims(result) if applied else [],
            parts=[_waterfall(result) if applied else None, _sides(result), _facts(result)],
            notes=result.notes,
            made=f"Measured on {result.gpu or 'the CPU'} (torch {result.torch_version}) "
            f"in {page.duration(result.seconds)}{after}.",
        ),
        page.Section(title="What was tried", parts=[_speedups(result), *_verdict_tables(result)]),
        page.Section(
            title="What came out",
            text=["\n".join(result.python_lines)],
            parts=[_prospects(result)],
        ),
        _method(result),
    ]


def _claims(result: TuneResult) -> list[str]:
    applied = result.rows_with(TuneVerdict.APPLIED)
    product = result.product_of_alone if len(applied) > 1 else None
    off = None if result.loss_difference is None else format_percent(result.loss_difference)
    return [
        page.given("Multiplying what each did alone would have claimed {:.2f}.", product),
        page.given("Losses of the measured steps differ by at most {}.", off),
    ]


def _waterfall(result: TuneResult) -> page.Chart:
    """The time for the work of one step of the start. A change's bar goes from what it found to
    what it left."""
    rows = {row.name: row for row in result.rows}
    ranked = [rows[name] for name in result.step_order or result.applied_order if name in rows]
    start, end = result.before.step_seconds, result.seconds_after / result.target_steps
    took = "what a change took off"
    bars, left = [page.Bar("start", "start", 0, start, [page.duration(start)])], start
    for row in ranked:
        tried = row.on_top or row.alone
        ratio = tried.speedup.ratio if tried and tried.speedup else 1.0
        before, left = left, left / ratio
        faster = f"{ratio:.2f} times as fast on top of the others"
        later = [] if row.verdict == TuneVerdict.APPLIED else [row.reason]
        bars.append(page.Bar(took, row.name, left, before, [faster, row.change, *later]))
    bars.append(page.Bar("end, measured", "end", 0, end, [page.duration(end)]))
    colours = {"start": "temporaries", took: "activations", "end, measured": "parameters"}
    work = f"{result.before.work_per_step:,.0f} {result.before.unit}"
    runs = f"{page.count(result.before.num_runs, 'run')} of the start"
    return page.chart(
        "From the start to the end",
        "Measured. Every bar is what a change took off on top of those above it; "
        f"the end is a run of its own. {runs}, {result.after.num_runs} of the end.",
        page.bar_view(page.Axis(f"time for {work}", "seconds"), bars, colours),
        detail=False,
    )


def _sides(result: TuneResult) -> page.Table:
    before, after = result.before, result.after
    runs = f"{page.count(before.num_runs, 'run')} before, {after.num_runs} after"

    def cells(side: MeasuredConfiguration, seconds: float) -> list[str]:
        losses = [f"{loss:.4f}" for loss in (side.first_loss, side.last_loss) if loss is not None]
        return [
            page.duration(side.step_seconds),
            f"{side.work_per_step:,.0f} {side.unit}",
            f"{side.per_second:,.0f} {side.unit}/s",
            page.size(side.memory_bytes),
            " to ".join(losses) if len(losses) == 2 else "",
            format_days(seconds),
        ]

    names = ("a step", "a step is", "throughput", "memory", "loss, first to last")
    return page.Table(
        title="Before and after",
        columns=("", *names, f"{result.target_steps:,} steps of the start"),
        left=("",),
        rows=[
            ["before", *cells(before, result.seconds_before)],
            ["after", *cells(after, result.seconds_after)],
        ],
        origin=page.MEASURED,
        samples=f"{runs}, each in a fresh process",
    )


def _facts(result: TuneResult) -> page.Table:
    cuda = page.given(f", CUDA {{}}, driver {result.driver_version}", result.cuda_version)
    triton, system = result.machine.triton or "missing", result.machine.system
    parameters = "unknown"
    if result.num_parameters is not None:
        parameters = f"{result.num_parameters:,} ({page.amount(result.num_parameters)})"
    return page.facts(
        "What was tuned",
        {
            "made": f"{result.time_utc}: {result.command}",
            "parameters": parameters,
            "hardware": result.gpu or "the CPU",
            "memory for the allocator": page.size(result.memory_bytes) or "all there is",
            "software": f"torch {result.torch_version}{cuda}, Triton {triton}, {system}",
        },
        origin=page.MEASURED,
        samples="one tune",
        detail=True,
    )


def _speedups(result: TuneResult) -> page.Chart:
    """Alone against the start, and on top of the others; coloured by the verdict."""
    return page.chart(
        "How much faster",
        f"Measured, by turns with runs without the change. {_loss_movement(result)}",
        _speedup_bars("alone", [(row, row.alone) for row in result.rows]),
        _speedup_bars("on top of the others", [(row, row.on_top) for row in result.rows]),
        detail=False,
    )


def _speedup_bars(
    name: str, tried: Sequence[tuple[CandidateResult, TrialResult | None]]
) -> page.View:
    bars = [
        page.Bar(
            "applied" if row.verdict == TuneVerdict.APPLIED else "rejected",
            row.name,
            0,
            100 * (trial.speedup.ratio - 1),
            [str(trial.speedup), trial.reason],
        )
        for row, trial in tried
        if trial and trial.speedup
    ]
    fastest_first = sorted(bars, key=lambda bar: -bar.end)
    x, colours = page.Axis("faster", "percent"), {"applied": "good", "rejected": "bad"}
    return page.bar_view(x, fastest_first, colours, name)


def _verdict_tables(result: TuneResult) -> list[page.Table]:
    why: Mapping[str, page.Cell] = {"why": "reason"}
    compared: Mapping[str, page.Cell] = {
        "on top of the others": lambda row: _speedup(row.on_top),
        "alone": lambda row: _speedup(row.alone),
        "memory": _memory,
        "losses": _losses,
    }
    failed: Mapping[str, page.Cell] = {
        "error": "reason",
        "likely cause": lambda row: row.likely_cause or "not recognised",
    }
    tables = (
        (TuneVerdict.APPLIED, "Applied", {**compared, "what it changes": _effect}),
        (TuneVerdict.REJECTED, "Tested and rejected", {**compared, **why}),
        (TuneVerdict.FAILED, "Failed", failed),
        (TuneVerdict.NOT_APPLICABLE, "Not applicable", why),
        (TuneVerdict.NOT_TRIED, "Not tried", why),
    )
    return [
        _verdict_table(title, result.rows_with(verdict), {"optimisation": "name", **cells})
        for verdict, title, cells in tables
    ]


def _verdict_table(
    title: str, rows: Sequence[CandidateResult], cells: Mapping[str, page.Cell]
) -> page.Table:
    tried = [trial for row in rows for trial in (row.alone, row.on_top) if trial is not None]
    runs = sum(trial.num_runs[1] for trial in tried if trial.num_runs)
    with_change = f"{page.count(runs, 'run')} with a change, beside those without"
    return page.table_of(
        rows,
        cells,
        left=list(cells),
        title=title,
        origin=page.MEASURED if runs else "not measured",
        samples=with_change if runs else "no run",
    )


def _effect(row: CandidateResult) -> str:
    return f"{row.what} ({row.change}){page.given('. Caution: {}', row.caution)}"


def _speedup(trial: TrialResult | None) -> str:
    return "not measured" if trial is None else str(trial.speedup or trial.verdict)


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


def _prospects(result: TuneResult) -> page.Table:
    return page.table_of(
        result.prospects,
        {
            "change": "what",
            "step": "step_seconds",
            "times as fast": lambda p: page.number(p.speedup, ".2f"),
            "memory": "memory_bytes",
            "": "reason",
        },
        left=("change", ""),
        title="What would help next",
        origin=page.PREDICTED,
        samples=page.count(len(result.prospects), "prediction"),
    )


def _method(result: TuneResult) -> page.Section:
    budget = page.given(" of a budget of {}", page.duration(result.budget_seconds))
    gates = (
        "Applied is what passes three gates: losses within the stated tolerance at every step, "
        f"a significant difference (p below {result.significance_level:g}), "
        f"and a gain of at least {100 * result.least_gain:g} %."
    )
    return page.Section(
        title="How it was measured",
        text=[
            "Every run is a fresh process with the same seed, baseline and candidate by turns "
            "(A B B A); a candidate that is behind in its first run is not run again. A run "
            "counts as the median of its steps. In brackets: the 95 % interval of the ratio.",
            f"{gates} {_loss_movement(result)}",
            "All numbers are of whole training steps; the total is over all runs of the start "
            f"({result.before.num_runs}) and of the end ({result.after.num_runs}). "
            f"It took {page.duration(result.seconds)}{budget}.",
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
