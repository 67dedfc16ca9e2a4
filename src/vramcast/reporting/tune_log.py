"""A tune as a log in Markdown: what was applied, rejected, failed and not tried, each with its evidence. The form is document 003's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from vramcast.records.tune import (
    CandidateResult,
    MeasuredConfiguration,
    PredictedGain,
    Speedup,
    TrialResult,
    TuneResult,
    TuneVerdict,
)
from vramcast.text import markdown_cell
from vramcast.units import format_bytes, format_count, format_days, format_percent, format_seconds

SECTIONS = (
    (
        TuneVerdict.APPLIED,
        "Applied",
        ("optimisation", "on top of the others", "alone", "memory", "losses", "what it changes"),
    ),
    (
        TuneVerdict.REJECTED,
        "Tested and rejected",
        ("optimisation", "on top of the others", "alone", "memory", "losses", "why"),
    ),
    (TuneVerdict.FAILED, "Failed", ("optimisation", "error", "likely cause")),
    (TuneVerdict.NOT_APPLICABLE, "Not applicable", ("optimisation", "why")),
    (TuneVerdict.NOT_TRIED, "Not tried", ("optimisation", "why")),
)


def markdown(result: TuneResult) -> str:
    parts = [
        f"# Optimisation log of {markdown_cell(result.workload)}",
        "",
        *_heading(result),
        *_sums(result),
    ]
    for verdict, title, columns in SECTIONS:
        rows = result.rows_with(verdict)
        if rows:
            parts += [f"## {title}", "", *_table(columns, [cells(row) for row in rows]), ""]
    return "\n".join([*parts, *_configuration(result), *_outlook(result), *_method(result)]) + "\n"


def cells(row: CandidateResult) -> list[str]:
    """One row of the section it belongs to."""
    if row.verdict in (TuneVerdict.APPLIED, TuneVerdict.REJECTED):
        last = _applied_text(row) if row.verdict == TuneVerdict.APPLIED else row.reason
        return [row.name, speedup(row.on_top), speedup(row.alone), memory(row), losses(row), last]
    if row.verdict == TuneVerdict.FAILED:
        return [row.name, row.reason, row.likely_cause or "not recognised"]
    return [row.name, row.reason]


def _applied_text(row: CandidateResult) -> str:
    caution = f". Caution: {row.caution}" if row.caution else ""
    return f"{row.what} ({row.change}){caution}"


def speedup(judged: TrialResult | None) -> str:
    if judged is None:
        return "not measured"
    return str(judged.speedup) if judged.speedup is not None else judged.verdict


def memory(row: CandidateResult) -> str:
    judged = row.on_top if row.on_top and row.on_top.memory_after_bytes is not None else row.alone
    if judged is None or judged.memory_before_bytes is None:
        return ""
    after = (
        "" if judged.memory_after_bytes is None else f" → {format_bytes(judged.memory_after_bytes)}"
    )
    return f"{format_bytes(judged.memory_before_bytes)}{after}"


def losses(row: CandidateResult) -> str:
    if row.loss_tolerance is None:
        return "of other data: not compared"
    known = [
        j.loss_difference
        for j in (row.alone, row.on_top)
        if j is not None and j.loss_difference is not None
    ]
    allowed = format_percent(row.loss_tolerance)
    return (
        f"{format_percent(max(known))} off ({allowed} allowed)" if known else f"{allowed} allowed"
    )


def _heading(result: TuneResult) -> list[str]:
    parameters = (
        "unknown"
        if result.num_parameters is None
        else f"{result.num_parameters:,} ({format_count(result.num_parameters)})"
    )
    cuda = (
        f", CUDA {result.cuda_version}, driver {result.driver_version}"
        if result.cuda_version
        else ""
    )
    facts = [
        ("made", f"{result.time_utc}: {result.command}"),
        ("parameters", parameters),
        ("start", " ".join(f"{name}={value}" for name, value in result.knobs.items())),
        ("hardware", result.gpu or "the CPU"),
        (
            "memory for the allocator",
            "all there is" if result.memory_bytes is None else format_bytes(result.memory_bytes),
        ),
        (
            "software",
            f"torch {result.torch_version}{cuda}, Triton {result.machine.triton or 'missing'}, {result.machine.system}",
        ),
    ]
    return [*_table(("", ""), facts), ""]


def _sums(result: TuneResult) -> list[str]:
    total = f"**{result.total.ratio:.2f} times as fast** by {result.total.by}, measured from end to end{_interval(result.total)}."
    lines = [
        total
        if result.after != result.before and result.rows_with(TuneVerdict.APPLIED)
        else "**Nothing was applied: the start is the end.**"
    ]
    if result.product_of_alone is not None and len(result.rows_with(TuneVerdict.APPLIED)) > 1:
        lines.append(
            f"Multiplying what each did alone would have claimed {result.product_of_alone:.2f}."
        )
    if result.loss_difference is not None and result.rows_with(TuneVerdict.APPLIED):
        lines.append(
            f"Losses of the measured steps differ by at most {format_percent(result.loss_difference)}."
        )
    columns = (
        "",
        "a step",
        "a step is",
        "throughput",
        "memory",
        f"{result.target_steps:,} steps of the start",
    )
    rows = [
        _side("before", result.before, result.seconds_before),
        _side("after", result.after, result.seconds_after),
    ]
    return ["## Result", "", *lines, "", *_table(columns, rows), ""]


def _interval(total: Speedup) -> str:
    return "" if total.low is None else f" (95 %: {total.low:.2f} to {total.high:.2f})"


def _side(name: str, side: MeasuredConfiguration, seconds: float) -> list[str]:
    taken = "" if side.memory_bytes is None else format_bytes(side.memory_bytes)
    size = f"{side.work_per_step:,.0f} {side.unit}"
    return [
        name,
        format_seconds(side.step_seconds),
        size,
        f"{side.per_second:,.0f} {side.unit}/s",
        taken,
        format_days(seconds),
    ]


def probe_command(result: TuneResult, file: str) -> str:
    """As it can be pasted into a shell."""
    device = "" if result.gpu else " --device cpu"
    return f"vramcast probe {shlex.quote(result.workload)} --config {shlex.quote(file)}{device}"


def _configuration(result: TuneResult) -> list[str]:
    lines = [
        "## Final configuration",
        "",
        f"`final.json` beside this log: `{probe_command(result, 'final.json')}` runs it,",
    ]
    lines += [
        "`vramcast.load_configuration` loads it. Or paste:",
        "",
        "```python",
        *result.python_lines,
        "```",
        "",
    ]
    return lines


def _outlook(result: TuneResult) -> list[str]:
    if not result.prospects:
        return []
    rows = [prospect_cells(prospect) for prospect in result.prospects]
    return [
        "## What would help next (predicted)",
        "",
        *_table(("change", "step", "times as fast", "memory", ""), rows),
        "",
    ]


def prospect_cells(prospect: PredictedGain) -> list[str]:
    seconds = "" if prospect.step_seconds is None else format_seconds(prospect.step_seconds)
    ratio = "" if prospect.speedup is None else f"{prospect.speedup:.2f}"
    return [
        prospect.what,
        seconds,
        ratio,
        "" if prospect.memory_bytes is None else format_bytes(prospect.memory_bytes),
        prospect.reason,
    ]


def _method(result: TuneResult) -> list[str]:
    notes = [f"- {markdown_cell(note)}" for note in result.notes]
    runs = f"{result.before.num_runs} runs of the start, {result.after.num_runs} of the end"
    budget = (
        ""
        if result.budget_seconds is None
        else f" of a budget of {format_seconds(result.budget_seconds)}"
    )
    return [
        "## How it was measured",
        "",
        "Every run is a fresh process with the same seed, baseline and candidate by turns (A B B A); a candidate that is behind in its first run",
        "is not run again. A run counts as the median of its steps. In brackets: 95 % of the ratio. Applied is what passes three gates: losses within",
        f"the stated tolerance at every step, a significant difference (p below {result.significance_level:g}), and at least {100 * result.least_gain:g} %. "
        f"{loss_movement(result)}",
        "All numbers are of whole training steps; the total is over all runs of the start and of the end.",
        f"{runs}, {format_seconds(result.seconds)}{budget}{earlier(result)}.",
        "",
        *notes,
    ]


def loss_movement(result: TuneResult) -> str:
    """A few steps from the beginning hardly move the loss: what the gate of losses can see, and what not."""
    first, last = result.before.first_loss, result.before.last_loss
    moved = (
        ""
        if not first or last is None
        else f" (those of the start moved by {format_percent(abs(last - first) / abs(first))} in the steps measured)"
    )
    return (
        f"Losses of so few steps show gross errors{moved}, not whether a long run learns as well."
    )


def earlier(result: TuneResult) -> str:
    return (
        f", after {result.num_earlier_runs} runs of earlier calls"
        if result.num_earlier_runs
        else ""
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(markdown_cell, columns))} |", "|" + "---|" * len(columns)]
    return [*lines, *(f"| {' | '.join(map(markdown_cell, row))} |" for row in rows)]
