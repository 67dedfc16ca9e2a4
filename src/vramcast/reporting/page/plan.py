"""A plan as sections: one for every GPU, a slider for batch and length, and document 001's table beside ours."""

from __future__ import annotations

from vramcast.records.plan import DocumentComparison, GpuPlan, Plan, Stage
from vramcast.reporting import verdicts
from vramcast.reporting.page.laws import of_fit
from vramcast.reporting.page.prediction import largest_table
from vramcast.reporting.page.sections import (
    PREDICTED,
    SERIES_COLOURS,
    Axis,
    Calculator,
    Chart,
    Column,
    Layer,
    Section,
    Table,
    View,
    count,
    knobs_of,
    number,
    size,
    table_of,
)
from vramcast.units import format_count


def of_plan(plan: Plan) -> list[Section]:
    if any(stage.seq_len < 1 for gpu in plan.gpus for stage in gpu.stages):
        raise ValueError(
            "a stage has a sequence length below 1"
        )  # which has no place on a logarithmic axis either
    calculator = _calculator(plan)
    overview = Section(
        title=f"Plan: {plan.workload}",
        subtitle=knobs_of(plan.knobs),
        text=[
            f"{format_count(plan.tokens)} tokens; {plan.split}.",
            f"Predicted with torch {plan.torch_version}, no GPU used, in {plan.seconds:.1f} s.",
            *([f"Not predicted: {plan.step_seconds_reason}."] if plan.step_seconds_reason else []),
        ],
        figures=[_overview(plan), *([calculator] if calculator else [])],
    )
    document = [_document(plan.document, plan)] if plan.document is not None else []
    return [overview, *(_gpu_section(plan, gpu) for gpu in plan.gpus), *document]


def _name(gpu: GpuPlan) -> str:
    return gpu.gpu or "the given memory"


def _overview(plan: Plan) -> Chart:
    views = []
    for name, field, unit in (
        ("largest batch", "batch_size", "number"),
        ("tokens a second", "tokens_per_second", "number"),
        ("memory", "peak_reserved_bytes", "bytes"),
    ):
        layers = [
            Layer(
                kind=kind,
                name=_name(gpu),
                points=points,
                colour=SERIES_COLOURS[i % len(SERIES_COLOURS)],
            )
            for i, gpu in enumerate(plan.gpus)
            if (
                points := [
                    [s.seq_len, value]
                    for s in gpu.stages
                    if (value := getattr(s, field)) is not None
                ]
            )
            for kind in ("line", "dot")
        ]
        if layers:
            views.append(
                View(
                    name=name,
                    x=Axis(label="sequence length", unit="number", log=len(plan.seq_lens) > 2),
                    y=Axis(label=name, unit=unit),
                    layers=layers,
                )
            )
    return Chart(
        title="By sequence length",
        caption=f"Predicted, for {count(len(plan.gpus), 'GPU')}.",
        views=views,
    )


def _calculator(plan: Plan) -> Calculator | None:
    """The law of the first GPU that has one: between GPUs the memory of a step differs by little."""
    first = next((gpu for gpu in plan.gpus if gpu.law is not None), None)
    if first is None or first.law is None:
        return None
    stage = next((s for s in first.stages if s.batch_size is not None), None)
    start = (
        {}
        if stage is None or stage.batch_size is None
        else {"batch_size": stage.batch_size, "seq_len": stage.seq_len}
    )
    title = f"Memory for a batch and a length (kernels of {_name(first)}, predicted)"
    return of_fit(first.law, title, {_name(gpu): gpu.capacity_bytes for gpu in plan.gpus}, start)


def _gpu_section(plan: Plan, gpu: GpuPlan) -> Section:
    sentence, tone = verdicts.of_gpu_plan(plan, gpu)
    columns, rows = table_of(
        gpu.stages,
        [
            (Column("length", "tokens"), lambda s: str(s.seq_len)),
            (Column("batch", "samples"), lambda s: number(s.batch_size, "d") or "none fits"),
            (Column("accumulation", "passes"), lambda s: number(s.accumulation_steps, "d")),
            (Column("a step", "tokens"), lambda s: number(s.tokens_per_step)),
            (Column("reserved"), lambda s: size(s.peak_reserved_bytes)),
            (
                Column("share"),
                lambda s: "" if s.share_of_memory is None else f"{100 * s.share_of_memory:.0f} %",
            ),
            (Column("binds", left=True), lambda s: s.binds or ""),
            (Column("rate", "tokens/s"), lambda s: number(s.tokens_per_second, ",.0f")),
            (
                Column("all tokens at this length", "hours"),
                lambda s: number(s.hours_to_budget, ",.2f"),
            ),
            (Column("starts at", "step"), lambda s: number(s.start_step)),
            (Column("for", "steps"), lambda s: number(s.steps)),
        ],
    )
    table = Table(
        title=f"Stages on {_name(gpu)}",
        columns=columns,
        rows=rows,
        origin=PREDICTED,
        samples=_samples(gpu),
        not_modelled=gpu.limits,
    )
    return Section(
        title=f"Plan for {_name(gpu)}",
        verdict=sentence,
        tone=tone,
        tables=[table, _reasons(gpu), *_in_the_way(gpu)],
    )


def _samples(gpu: GpuPlan) -> str:
    simulated = f", {count(len(gpu.law.rows), 'size')} simulated" if gpu.law is not None else ""
    return f"{count(len(gpu.stages), 'length')}{simulated}"


def _reasons(gpu: GpuPlan) -> Table:
    rows = [[str(s.seq_len), s.why] for s in gpu.stages]
    columns = [Column("length", "tokens"), Column("why", left=True)]
    return Table(title="Why", columns=columns, rows=rows, origin=PREDICTED, samples=_samples(gpu))


def _in_the_way(gpu: GpuPlan) -> list[Table]:
    """For the first length at which nothing fits."""
    stage: Stage | None = next((s for s in gpu.stages if not s.fits), None)
    if stage is None or not stage.largest_tensors:
        return []
    return [
        largest_table(
            stage.largest_tensors,
            gpu.limits,
            f"In the way at length {stage.seq_len}, where {size(stage.missing_bytes)} are missing",
        )
    ]


def _document(found: DocumentComparison, plan: Plan) -> Section:
    columns, rows = table_of(
        found.rows,
        [
            (Column("length", "tokens"), lambda r: str(r.seq_len)),
            (Column("its batch", "samples"), lambda r: str(r.document_batch)),
            (Column("its logits alone"), lambda r: size(r.logits_bytes)),
            (Column("it would need"), lambda r: size(r.document_needs_bytes)),
            (Column("fits"), lambda r: "yes" if r.document_fits else "no"),
            (Column("our batch", "samples"), lambda r: number(r.batch_size, "d") or "none"),
            (
                Column(f"in {found.chunks} chunks", "samples"),
                lambda r: number(r.chunked_batch_size, "d"),
            ),
            (
                Column("its rate", "tokens/s"),
                lambda r: number(r.document_tokens_per_second, ",.0f"),
            ),
            (Column("our rate", "tokens/s"), lambda r: number(r.tokens_per_second, ",.0f")),
        ],
    )
    limits = next((gpu.limits for gpu in plan.gpus if gpu.gpu == found.gpu), [])
    origin = "its batch and rate: the document's claims; the others: predicted"
    table = Table(
        title=f"On {found.gpu}",
        columns=columns,
        rows=rows,
        origin=origin,
        samples=count(len(found.rows), "length"),
        not_modelled=limits,
        notes=found.notes,
    )
    return Section(title=f"Document {found.document} beside ours", tables=[table])
