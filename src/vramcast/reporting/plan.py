"""A plan as sections: an overview, and the stages on every GPU."""

from __future__ import annotations

from vramcast.records.plan import GpuPlan, Plan, Stage
from vramcast.reporting.laws import calculator_of
from vramcast.reporting.prediction import largest_table, where_of
from vramcast.reporting.sections import (
    PREDICTED,
    SERIES_COLOURS,
    Axis,
    Calculator,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    Tone,
    View,
    count,
    knobs_of,
    number,
    predicted_with,
    size,
    table_of,
)
from vramcast.units import format_count


def of_plan(plan: Plan) -> list[Section]:
    verdict, tone = _ranking(plan)
    overview = Section(
        kind="Plan",
        title=plan.workload,
        subtitle=knobs_of(plan.knobs),
        verdict=verdict,
        tone=tone,
        figures=[*_overview(plan), *_calculator(plan)],
        notes=_notes(plan),
        made=f"All numbers are predicted {predicted_with(plan.torch_version, plan.seconds)}",
    )
    return [overview, *(_gpu_section(plan, gpu) for gpu in plan.gpus)]


def _name(gpu: GpuPlan) -> str:
    return gpu.gpu or "the given memory"


def _ranking(plan: Plan) -> tuple[str, Tone]:
    """Which of several GPUs is the fastest; with one GPU its own section says everything."""
    if len(plan.gpus) < 2:
        return "", Tone.PLAIN
    complete = [gpu for gpu in plan.gpus if gpu.complete]
    text = f"all lengths fit on {len(complete)} of {len(plan.gpus)} GPUs"
    if not complete:
        return f"✗ {text}", Tone.BAD
    timed = [(gpu.total_hours, _name(gpu)) for gpu in complete if gpu.total_hours is not None]
    order = ", ".join(f"{name} {hours:,.1f} hours" for hours, name in sorted(timed))
    tone = Tone.GOOD if len(complete) == len(plan.gpus) else Tone.UNSURE
    return f"✓ {text}{f': {order}' if order else ''}", tone


def _notes(plan: Plan) -> list[str]:
    timed = any(stage.hours_to_budget is not None for gpu in plan.gpus for stage in gpu.stages)
    tokens = format_count(plan.tokens)
    return [
        "start is the step at which a length begins",
        f"tokens are those of one step; of the {tokens} in all, {plan.split}",
        *([f"hours are those for all {tokens} tokens at that length"] if timed else []),
        *([f"not predicted: {plan.step_seconds_reason}"] if plan.step_seconds_reason else []),
    ]


def _overview(plan: Plan) -> list[Chart]:
    """One length alone makes no curve."""
    if len(plan.seq_lens) < 2:
        return []
    x = Axis(label="sequence length", unit="number", log=len(plan.seq_lens) > 2)
    views = []
    for name, field, unit in (
        ("largest batch", "batch_size", "number"),
        ("tokens a second", "tokens_per_second", "number"),
        ("memory", "peak_reserved_bytes", "bytes"),
    ):
        layers = []
        for i, gpu in enumerate(plan.gpus):
            values = [(stage.seq_len, getattr(stage, field)) for stage in gpu.stages]
            points = [[length, value] for length, value in values if value is not None]
            colour = SERIES_COLOURS[i % len(SERIES_COLOURS)]
            layers += [
                Layer(kind=kind, name=_name(gpu), points=points, colour=colour)
                for kind in ("line", "dot")
                if points
            ]
        if layers:
            views.append(View(name=name, x=x, y=Axis(label=name, unit=unit), layers=layers))
    caption = f"Predicted, for {count(len(plan.gpus), 'GPU')}."
    chart = Chart(title="By sequence length", caption=caption, views=views, detail=True)
    return [chart] if views else []


def _calculator(plan: Plan) -> list[Calculator]:
    """The law of the first GPU that has one: between GPUs the memory of a step differs little."""
    first = next((gpu for gpu in plan.gpus if gpu.law is not None), None)
    if first is None or first.law is None:
        return []
    stage = next((stage for stage in first.stages if stage.batch_size is not None), None)
    start = {}
    if stage is not None and stage.batch_size is not None:
        start = {"batch_size": stage.batch_size, "seq_len": stage.seq_len}
    title = f"Memory for a batch and a length, in one pass (kernels of {_name(first)}, predicted)"
    own = {_name(gpu): gpu.capacity_bytes for gpu in plan.gpus}
    return calculator_of(first.law, title, own, start)


def _gpu_section(plan: Plan, gpu: GpuPlan) -> Section:
    verdict, tone = _verdict(plan, gpu)
    return Section(
        kind="Plan",
        title=f"{plan.workload} on {_name(gpu)}",
        verdict=verdict,
        tone=tone,
        tables=[_stages(gpu), _reasons(gpu), *_in_the_way(gpu)],
        limits=[f"on {_name(gpu)}: {limit}" for limit in gpu.limits],
    )


def _verdict(plan: Plan, gpu: GpuPlan) -> tuple[str, Tone]:
    spared = f", {100 * plan.safety:g} % of it left free" if plan.safety else ""
    where = where_of(gpu.gpu, gpu.capacity_bytes, spared)
    missing = [str(stage.seq_len) for stage in gpu.stages if not stage.fits]
    if missing:
        return f"✗ {where}: not even one sample fits at length {', '.join(missing)}", Tone.BAD
    time = "time not predicted" if gpu.total_hours is None else f"{gpu.total_hours:,.1f} hours"
    steps = f"{number(gpu.total_steps)} steps for {format_count(gpu.total_tokens or 0)} tokens"
    return f"✓ {where}: {steps}, {time}", Tone.GOOD


def _stages(gpu: GpuPlan) -> Table:
    """With short headings, so that all columns stand side by side in 80 characters."""
    return table_of(
        gpu.stages,
        [
            (Column("length"), lambda s: str(s.seq_len)),
            (Column("batch"), lambda s: number(s.batch_size, "d") or "none"),
            (Column("accum"), lambda s: number(s.accumulation_steps, "d")),
            (Column("tokens"), lambda s: number(s.tokens_per_step, "d")),
            (Column("memory"), lambda s: size(s.peak_reserved_bytes)),
            (Column("share"), lambda s: _share(s.share_of_memory)),
            (Column("binds"), lambda s: s.binds or ("" if s.fits else "memory")),
            (Column("tok/s"), lambda s: _rate(s.tokens_per_second)),
            (Column("smp/s"), lambda s: _rate(s.samples_per_second)),
            (Column("hours"), lambda s: _rate(s.hours_to_budget)),
            (Column("start"), lambda s: number(s.start_step, "d")),
        ],
        title="Stages",
        tones=[Tone.PLAIN if stage.fits else Tone.BAD for stage in gpu.stages],
        origin=PREDICTED,
        samples=_samples(gpu),
    )


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _rate(value: float | None) -> str:
    """Three digits, and all before the point."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _samples(gpu: GpuPlan) -> str:
    simulated = f", {count(len(gpu.law.rows), 'size')} simulated" if gpu.law is not None else ""
    return f"{count(len(gpu.stages), 'length')}{simulated}"


def _reasons(gpu: GpuPlan) -> Table:
    return Table(
        title="Why",
        columns=[Column("length"), Column("why", left=True)],
        rows=[[str(stage.seq_len), stage.why] for stage in gpu.stages],
        origin=PREDICTED,
        samples=_samples(gpu),
    )


def _in_the_way(gpu: GpuPlan) -> list[Table]:
    """For the first length at which nothing fits: the largest there are the largest at longer
    ones too."""
    stage: Stage | None = next((stage for stage in gpu.stages if not stage.fits), None)
    if stage is None:
        return []
    missing = f"where {size(stage.missing_bytes or 0)} are missing"
    return largest_table(
        stage.largest_tensors, f"Largest in memory at length {stage.seq_len}, {missing}"
    )
