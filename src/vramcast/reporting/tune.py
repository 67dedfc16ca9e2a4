"""A tune as sections: the result, every candidate, and how it was measured."""

import shlex
from collections.abc import Mapping

from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.reporting import sections as page
from vramcast.units import format_days, format_percent


def of_tune(result: TuneResult) -> list[page.Section]:
    applied, total = result.rows_with(TuneVerdict.APPLIED), result.total
    verdict = page.unsure("nothing that was tried made it faster")
    claims: list[str] = []
    if applied:
        interval = page.given(f" (95 %: {{:.2f}} to {page.number(total.high, '.2f')})", total.low)
        verdict = page.good(
            f"{total.ratio:.2f} times as fast by {total.by}{interval}, measured from end to end"
        )
        product = result.product_of_alone if len(applied) > 1 else None
        off = None if result.loss_difference is None else format_percent(result.loss_difference)
        claims = [
            page.given("The speed-ups of the single changes multiply to {:.2f}.", product),
            page.given("Losses of the measured steps differ by at most {}.", off),
        ]
    prospects = page.table_of(
        result.prospects,
        {
            "change": "what",
            "step": "step_seconds",
            "times as fast": "speedup:.2f",
            "memory": "memory_bytes",
            "": "reason",
        },
        left=("change", ""),
        title="What would help next",
        origin=page.PREDICTED,
        samples=page.count(len(result.prospects), "prediction"),
    )
    after = page.given(", after {} runs of earlier calls", result.num_earlier_runs or None)
    return [
        page.Section(
            kind="Tuned",
            title=result.workload,
            knobs=result.knobs,
            verdict=verdict,
            text=claims,
            parts=[_waterfall(result) if applied else None, _sides(result), _facts(result)],
            notes=result.notes,
            made=f"Measured on {result.gpu or 'the CPU'} (torch {result.torch_version}) "
            f"in {page.duration(result.seconds)}{after}.",
        ),
        page.Section(title="What was tried", parts=[_speedups(result), *_verdict_tables(result)]),
        page.Section(
            title="What came out", text=["\n".join(result.python_lines)], parts=[prospects]
        ),
        _method(result),
    ]


def _waterfall(result: TuneResult) -> page.Chart:
    """A bar for each change, from the time before it to the time after it."""
    rows = {row.name: row for row in result.rows}
    before, took = result.before, "what a change took off"
    left, end = before.step_seconds, result.seconds_after / result.target_steps
    bars = [page.Bar("start", "start", 0, left, [page.duration(left)])]
    for name in result.step_order or result.applied_order:
        if row := rows.get(name):
            tried = row.on_top or row.alone
            ratio = tried.speedup.ratio if tried and tried.speedup else 1.0
            details = [f"{ratio:.2f} times as fast on top of the others", row.change]
            if row.verdict != TuneVerdict.APPLIED:
                details.append(row.reason)
            bars.append(page.Bar(took, name, left / ratio, left, details))
            left /= ratio
    bars.append(page.Bar("end, measured", "end", 0, end, [page.duration(end)]))
    colours = {"start": "temporaries", took: "activations", "end, measured": "parameters"}
    work = page.Axis(f"time for {before.work_per_step:,.0f} {before.unit}", "seconds")
    return page.chart(
        "From the start to the end",
        "Measured. Every bar is what a change took off on top of those above it; the end is a run "
        f"of its own. {page.count(before.num_runs, 'run')} of the start, "
        f"{result.after.num_runs} of the end.",
        page.bar_view(work, bars, colours),
        detail=False,
    )


def _sides(result: TuneResult) -> page.Table:
    runs = f"{page.count(result.before.num_runs, 'run')} before, {result.after.num_runs} after"

    def row(name: str, side: MeasuredConfiguration, seconds: float) -> list[str]:
        losses = [f"{loss:.4f}" for loss in (side.first_loss, side.last_loss) if loss is not None]
        return [
            name,
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
        columns=("", *names, f"the work of {result.target_steps:,} steps"),
        left=("",),
        rows=[
            row("before", result.before, result.seconds_before),
            row("after", result.after, result.seconds_after),
        ],
        origin=page.MEASURED,
        samples=f"{runs}, each in a fresh process",
    )


def _facts(result: TuneResult) -> page.Table:
    driver = f", driver {result.driver_version}" if result.cuda_version else ""
    cuda = page.given(", CUDA {}", result.cuda_version) + driver
    triton, system = result.machine.triton or "missing", result.machine.system
    short = page.amount(result.num_parameters)
    return page.facts(
        "What was tuned",
        {
            "made": ": ".join(filter(None, (result.time_utc, result.command))) or "unknown",
            "parameters": page.given(f"{{:,}} ({short})", result.num_parameters) or "unknown",
            "hardware": result.gpu or "the CPU",
            "memory for the allocator": page.size(result.memory_bytes) or "all there is",
            "software": f"torch {result.torch_version}{cuda}, Triton {triton}, {system}",
        },
        origin=page.MEASURED,
        samples="one tune",
        detail=True,
    )


def _speedups(result: TuneResult) -> page.Chart:
    def view(name: str, field: str) -> page.View:
        bars = [
            page.Bar(
                "applied" if row.verdict == TuneVerdict.APPLIED else "rejected",
                row.name,
                0,
                100 * (trial.speedup.ratio - 1),
                [str(trial.speedup), trial.reason],
            )
            for row in result.rows
            if (trial := getattr(row, field)) and trial.speedup
        ]
        fastest_first = sorted(bars, key=lambda bar: -bar.end)
        colours = {"applied": "good", "rejected": "bad"}
        return page.bar_view(page.Axis("faster", "percent"), fastest_first, colours, name)

    return page.chart(
        "How much faster",
        f"Measured in alternation with runs without the change. {_loss_movement(result)}",
        view("alone", "alone"),
        view("on top of the others", "on_top"),
        detail=False,
    )


def _verdict_tables(result: TuneResult) -> list[page.Table]:
    def table(title: str, verdict: TuneVerdict, cells: Mapping[str, page.Cell]) -> page.Table:
        rows = result.rows_with(verdict)
        trials = [trial for row in rows for trial in row.trials]
        runs = sum(trial.num_runs[1] for trial in trials if trial.num_runs)
        with_change = f"{page.count(runs, 'run')} with a change, beside those without"
        return page.table_of(
            rows,
            {"optimisation": "name", **cells},
            left=["optimisation", *cells],
            title=title,
            origin=page.MEASURED if runs else "not measured",
            samples=with_change if runs else "no run",
        )

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
    return [
        table("Applied", TuneVerdict.APPLIED, {**compared, "what it changes": _effect}),
        table("Tested and rejected", TuneVerdict.REJECTED, {**compared, **why}),
        table("Failed", TuneVerdict.FAILED, failed),
        table("Not applicable", TuneVerdict.NOT_APPLICABLE, why),
        table("Not tried", TuneVerdict.NOT_TRIED, why),
    ]


def _effect(row: CandidateResult) -> str:
    return f"{row.what} ({row.change}){page.given('. Caution: {}', row.caution)}"


def _speedup(trial: TrialResult | None) -> str:
    return "not measured" if trial is None else str(trial.speedup or trial.verdict)


def _memory(row: CandidateResult) -> str:
    on_top = row.on_top and row.on_top.memory_after_bytes is not None
    trial = row.on_top if on_top else row.alone
    ends = (trial.memory_before_bytes, trial.memory_after_bytes) if trial else ()
    known = trial.predicted_memory_bytes if trial else None
    return " → ".join(filter(None, map(page.size, ends))) + page.given(
        " (predicted {})", page.size(known)
    )


def _losses(row: CandidateResult) -> str:
    if row.loss_tolerance is None:
        return "of other data: not compared"
    known = [t.loss_difference for t in row.trials if t.loss_difference is not None]
    allowed = f"{format_percent(row.loss_tolerance)} allowed"
    return f"{format_percent(max(known))} off ({allowed})" if known else allowed


def _method(result: TuneResult) -> page.Section:
    budget = page.given(" of a budget of {}", page.duration(result.budget_seconds))
    return page.Section(
        title="How it was measured",
        text=[
            "Every run is a fresh process with the same seed, baseline and candidate by turns "
            "(A B B A); a candidate that is behind in its first run is not run again. A run "
            "counts as the median of its steps. In brackets: the 95 % interval of the ratio.",
            "Applied is what passes three gates: losses within the stated tolerance at every step, "
            f"a significant difference (p below {result.significance_level:g}), and a gain of at "
            f"least {100 * result.least_gain:g} %. {_loss_movement(result)}",
            "All numbers are of whole training steps; the total is over all runs of the start "
            f"({result.before.num_runs}) and of the end ({result.after.num_runs}). "
            f"It took {page.duration(result.seconds)}{budget}.",
            f"final.json beside this log is the configuration: `{probe_command(result)}` runs "
            "it, `vramcast.load_configuration` loads it.",
        ],
        detail=True,
    )


def probe_command(result: TuneResult, file: str = "final.json") -> str:
    device = "" if result.gpu else " --device cpu"
    if result.line:
        return f"vramcast probe --config {shlex.quote(file)}{device} -- {result.workload}"
    return f"vramcast probe {shlex.quote(result.workload)} --config {shlex.quote(file)}{device}"


def _loss_movement(result: TuneResult) -> str:
    """How much the losses say: a few steps hardly change the loss, so this gate sees little."""
    first, last = result.before.first_loss, result.before.last_loss
    share = format_percent(abs(last - first) / abs(first)) if first and last is not None else ""
    moved = page.given(" (those of the start moved by {} in the steps measured)", share)
    return (
        f"Losses of so few steps show gross errors{moved}, not whether a long run learns as well."
    )
