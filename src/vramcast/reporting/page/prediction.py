"""A prediction, and a curve over batch sizes, as sections. Measurements of the same workload are laid beside and over them."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.measurement import Measurement
from vramcast.records.prediction import BatchSizeCurve, BatchSizePoint, LargeTensor, Prediction
from vramcast.reporting import verdicts
from vramcast.reporting.page.sections import (
    PREDICTED,
    Axis,
    Chart,
    Column,
    Layer,
    Meter,
    Section,
    Table,
    View,
    count,
    duration,
    knobs_of,
    number,
    percent,
    size,
    table_of,
)
from vramcast.reporting.page.through_step import (
    capacity_layer,
    colour_of,
    described,
    far_capacity,
    run_chart,
    step_chart,
    words,
)

MOST_BARS = 24
ONE_RUN = "one simulated run"


def of_prediction(
    p: Prediction, measured: Sequence[Measurement] = (), overlay: Sequence[Layer] = ()
) -> list[Section]:
    """`measured`: of the same workload and knobs; `overlay`: their memory through the step."""
    sentence, tone = verdicts.of_prediction(p)
    limits = p.limits
    summary = Section(
        title=f"Predicted: {p.workload}",
        subtitle=knobs_of(p.knobs),
        verdict=sentence,
        tone=tone,
        text=[
            f"Predicted with torch {p.torch_version}, no GPU used, in {duration(p.seconds)}.",
            _step_time(p),
        ],
        figures=[_meter(p)],
        tables=[_totals(p, measured)],
    )
    through = [_through(p, measured, overlay)] if p.step_memory or p.timeline else []
    return [summary, *through, _at_peak(p, limits)]


def _step_time(p: Prediction) -> str:
    if p.step is None:
        return f"Step time: not predicted ({p.step_seconds_reason})."
    tokens = "" if p.tokens_per_second is None else f", {p.tokens_per_second:,.0f} tokens/s"
    return f"One step: {duration(p.step.seconds)}{tokens}, {100 * p.step.achieved_fraction:.0f} % of the GPU's peak rate; {verdicts.BOUND_BY[p.step.bound_by]}."


def _meter(p: Prediction) -> Meter:
    parts = [
        (words(name), num_bytes, colour_of(name))
        for name, num_bytes in p.breakdown_bytes.items()
        if num_bytes > 0
    ]
    return Meter(
        title="Reserved at the peak (predicted)",
        parts=parts,
        capacity_bytes=p.capacity_bytes,
        capacity_name=p.gpu or "the given memory",
    )


def _totals(p: Prediction, measured: Sequence[Measurement]) -> Table:
    columns = [Column("", left=True), Column("first step, predicted"), Column("peak, predicted")]
    rows = [
        ["allocated (tensors)", size(p.first_step_allocated_bytes), size(p.peak_allocated_bytes)],
        [
            "reserved (by the allocator)",
            size(p.first_step_reserved_bytes),
            size(p.peak_reserved_bytes),
        ],
        [
            "whole process (nvidia-smi)",
            "",
            "unknown without a GPU" if p.process_bytes is None else size(p.process_bytes),
        ],
        ["allocator retries", "", str(p.num_alloc_retries)],
        ["parameters", "", f"{p.num_parameters:,}"],
        ["step time", "", duration(p.step_seconds)],
    ]
    for m in measured:
        columns += [
            Column(f"peak, measured on {m.gpu or m.device}"),
            Column("predicted less measured"),
        ]
        for row, cells in zip(rows, _measured_cells(p, m), strict=True):
            row += cells
    samples = f"{ONE_RUN} of a few steps" + "".join(
        f"; {count(m.steps_done, 'measured step')}" for m in measured
    )
    origin = "predicted" if not measured else "predicted, and measured where a column says so"
    return Table(
        title="Memory and time",
        columns=columns,
        rows=rows,
        origin=origin,
        samples=samples,
        not_modelled=p.limits,
    )


def _measured_cells(p: Prediction, m: Measurement) -> list[list[str]]:
    pairs = [
        (p.peak_allocated_bytes, m.peak_allocated_bytes),
        (p.peak_reserved_bytes, m.peak_reserved_bytes),
        (p.process_bytes, m.process_bytes),
    ]
    seconds = m.times.median_seconds if m.times else None
    return [
        *([size(real), error(guess, real)] for guess, real in pairs),
        [number(m.num_alloc_retries), ""],
        [number(m.num_parameters), ""],
        [duration(seconds), error(p.step_seconds, seconds)],
    ]


def error(predicted: float | None, measured: float | None) -> str:
    if predicted is None or not measured:
        return ""
    return "exact" if predicted == measured else percent(100 * (predicted / measured - 1), 3)


def _through(p: Prediction, measured: Sequence[Measurement], overlay: Sequence[Layer]) -> Section:
    peaks = [
        Layer(
            kind="across",
            name=f"peak reserved (measured on {m.gpu or m.device})",
            points=[[m.peak_reserved_bytes]],
            colour="measured",
            dashed=True,
        )
        for m in measured
        if m.peak_reserved_bytes is not None and not overlay
    ]
    if p.step_memory is None:
        return Section(title="Memory over time", figures=[run_chart(p)])
    chart = step_chart(
        p.step_memory,
        origin=PREDICTED,
        capacity_bytes=p.capacity_bytes,
        peak_reserved_bytes=p.peak_reserved_bytes,
        measured=[*overlay, *peaks],
    )
    return Section(title="Memory through the step", figures=[chart])


def _at_peak(p: Prediction, limits: Sequence[str]) -> Section:
    tensors = [largest_table(p.largest_tensors, limits)] if p.largest_tensors else []
    return Section(
        title="What is alive at the peak",
        figures=[_alive(p)],
        tables=[_breakdown(p, limits), *tensors],
    )


def _alive(p: Prediction) -> Chart:
    x, y = Axis(label="memory", unit="bytes"), Axis(label="")
    categories = sorted(
        ((n, b) for n, b in p.breakdown_bytes.items() if b > 0), key=lambda item: -item[1]
    )
    views = [
        View(
            name="by category",
            x=x,
            y=y,
            pointer="point",
            layers=_bars([(words(n), n, b, [f"{words(n)}: {size(b)}"]) for n, b in categories]),
        )
    ]
    if p.alive_at_peak:
        groups = [
            (
                f"{g.module or 'no module'} · {words(g.category)}",
                g.category,
                g.num_bytes,
                [size(g.num_bytes), count(g.num_tensors, "tensor")],
            )
            for g in p.alive_at_peak[:MOST_BARS]
        ]
        views.append(View(name="by module", x=x, y=y, pointer="point", layers=_bars(groups)))
    tensors = [
        (
            f"{i + 1}. {t.name or t.operator.removeprefix('aten::')}",
            t.category,
            t.num_bytes,
            described(t),
        )
        for i, t in enumerate(p.largest_tensors)
    ]
    views += (
        [View(name="by tensor", x=x, y=y, pointer="point", layers=_bars(tensors))]
        if tensors
        else []
    )
    left = len(p.alive_at_peak) - MOST_BARS
    more = (
        f" By module: the {MOST_BARS} largest groups of {len(p.alive_at_peak)}." if left > 0 else ""
    )
    return Chart(
        title=f"Alive at the peak ({p.peak_phase})",
        caption=f"Predicted, largest first.{more}",
        views=views,
    )


def _bars(items: Sequence[tuple[str, str, int, list[str]]]) -> list[Layer]:
    """A layer a category, so that a legend says which colour is which."""
    names = list(dict.fromkeys(category for _, category, _, _ in items))
    order = {label: rank for rank, (label, _, _, _) in enumerate(items)}
    return [
        Layer(
            kind="bar",
            name=words(name),
            colour=colour_of(name),
            points=[
                [label, 0, num_bytes, order[label]]
                for label, category, num_bytes, _ in items
                if category == name
            ],
            details=[details for _, category, _, details in items if category == name],
        )
        for name in names
    ]


def _breakdown(p: Prediction, limits: Sequence[str]) -> Table:
    total = max(p.peak_reserved_bytes, 1)
    rows = [
        [words(name), size(b), f"{100 * b / total:.1f} %"]
        for name, b in p.breakdown_bytes.items()
        if b
    ]
    columns = [Column("category", left=True), Column("memory"), Column("share")]
    title = f"By category at the peak ({p.peak_phase})"
    return Table(
        title=title,
        columns=columns,
        rows=rows,
        origin=PREDICTED,
        samples=ONE_RUN,
        not_modelled=limits,
    )


def largest_table(
    tensors: Sequence[LargeTensor],
    limits: Sequence[str],
    title: str = "Largest tensors at the peak",
) -> Table:
    columns, rows = table_of(
        tensors,
        [
            (Column("size"), lambda t: size(t.num_bytes)),
            (Column("what", left=True), lambda t: f"{words(t.category)} {t.name}".strip()),
            (Column("shape", left=True), lambda t: f"{t.dtype}[{', '.join(map(str, t.shape))}]"),
            (Column("made by", left=True), lambda t: t.operator.removeprefix("aten::")),
            (Column("module", left=True), lambda t: t.module),
            (Column("source line", left=True), lambda t: t.source),
        ],
    )
    return Table(
        title=title,
        columns=columns,
        rows=rows,
        origin=PREDICTED,
        samples=ONE_RUN,
        not_modelled=limits,
    )


def of_curve(curve: BatchSizeCurve) -> list[Section]:
    fitting = [p for p in curve.points if p.fits]
    where = curve.gpu or "the given memory"
    sentence, tone = (
        f"{count(len(curve.points), 'batch size')}; how much memory there is was not given",
        verdicts.PLAIN,
    )
    if curve.capacity_bytes is not None:
        largest = max((p.batch_size for p in fitting), default=None)
        sentence = (
            f"✗ none of these fits on {where}"
            if largest is None
            else f"✓ {largest} is the largest of these that fits on {where}"
        )
        tone = verdicts.BAD if largest is None else verdicts.GOOD
    text = [
        f"Predicted with torch {curve.torch_version}, no GPU used, in {duration(curve.seconds)}."
    ]
    return [
        Section(
            title=f"{curve.workload}: memory by batch size",
            verdict=sentence,
            tone=tone,
            text=text,
            figures=[_curve_chart(curve)],
            tables=[_curve_table(curve)],
        )
    ]


def _curve_chart(curve: BatchSizeCurve) -> Chart:
    layers = [
        Layer(
            kind="line",
            name="reserved (predicted)",
            points=[[p.batch_size, p.peak_reserved_bytes] for p in curve.points],
            colour="reserved",
        ),
        Layer(
            kind="line",
            name="allocated (predicted)",
            points=[[p.batch_size, p.peak_allocated_bytes] for p in curve.points],
            colour="allocated",
        ),
        *_dots("fits", [p for p in curve.points if p.fits], "good"),
        *_dots("does not fit", [p for p in curve.points if not p.fits], "bad"),
    ]
    top = max((p.peak_reserved_bytes for p in curve.points), default=0)
    layers += capacity_layer(curve.capacity_bytes, top)
    view = View(
        name="",
        x=Axis(label="batch size", unit="number"),
        y=Axis(label="memory", unit="bytes"),
        layers=layers,
    )
    return Chart(
        title="Memory against batch size",
        caption=f"Predicted; a size that does not fit is shown with what it would take.{far_capacity(curve.capacity_bytes, top)}",
        views=[view],
    )


def _dots(name: str, points: Sequence[BatchSizePoint], colour: str) -> list[Layer]:
    details = [["simulated" if p.simulated else "interpolated"] for p in points]
    return (
        [
            Layer(
                kind="dot",
                name=name,
                points=[[p.batch_size, p.peak_reserved_bytes] for p in points],
                colour=colour,
                details=details,
            )
        ]
        if points
        else []
    )


def _curve_table(curve: BatchSizeCurve) -> Table:
    columns, rows = table_of(
        curve.points,
        [
            (Column("batch", "samples"), lambda p: str(p.batch_size)),
            (Column("allocated"), lambda p: size(p.peak_allocated_bytes)),
            (Column("reserved"), lambda p: size(p.peak_reserved_bytes)),
            (
                Column("fits"),
                lambda p: "" if curve.capacity_bytes is None else "yes" if p.fits else "no",
            ),
            (Column("retries"), lambda p: str(p.num_alloc_retries)),
            (Column("step"), lambda p: duration(p.step_seconds)),
            (Column("source", left=True), lambda p: "simulated" if p.simulated else "interpolated"),
        ],
    )
    simulated = sum(p.simulated for p in curve.points)
    samples = f"{count(simulated, 'simulated size')}, the others interpolated"
    return Table(
        title="By batch size",
        columns=columns,
        rows=rows,
        origin=PREDICTED,
        samples=samples,
        not_modelled=curve.limits,
    )
