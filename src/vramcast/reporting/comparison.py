"""Which of several trained models is better, as sections."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.comparison import Comparison, Difference, ModelResult
from vramcast.reporting.sections import (
    MEASURED,
    NO_AXIS,
    Axis,
    Chart,
    Column,
    Layer,
    Remark,
    Section,
    Table,
    Tone,
    View,
    count,
    duration,
    number,
    size,
    table_of,
)
from vramcast.units import format_count


def of_comparison(found: Comparison) -> list[Section]:
    best = found.models[0].model
    first, *others = (_remark(best, difference) for difference in found.differences)
    return [
        Section(
            kind="Which is better",
            title=f"{found.metric} under {found.protocol}, best first",
            verdict=first.text,
            tone=first.tone,
            remarks=others,
            figures=[_gaps(found.differences, best)],
            tables=[_models(found)],
            notes=found.notes,
            made=f"Measured on {found.data}.",
        )
    ]


def _remark(best: str, d: Difference) -> Remark:
    low, high = d.interval
    numbers = f"by {d.difference:.4f} (95 %: {low:.4f} to {high:.4f}, p = {d.p_value:.2g}; {d.how})"
    if d.distinguishable:
        return Remark(text=f"✓ {best} is better than {d.model} {numbers}", tone=Tone.GOOD)
    text = f"≈ {best} and {d.model} are not distinguishable: they differ {numbers}"
    return Remark(text=text, tone=Tone.UNSURE)


def _gaps(differences: Sequence[Difference], best: str) -> Chart:
    ranked = list(enumerate(differences))
    layers = []
    for name, colour, wanted in (
        ("distinguishable", "good", True),
        ("not distinguishable", "unsure", False),
    ):
        chosen = [(rank, d) for rank, d in ranked if d.distinguishable is wanted]
        points = [[d.model, *d.interval, rank] for rank, d in chosen]
        details = [[f"{d.difference:+.4f}", f"p = {d.p_value:.2g}", d.how] for _, d in chosen]
        if points:
            layer = Layer(kind="bar", name=name, points=points, colour=colour, details=details)
            layers.append(layer)
    layers.append(Layer(kind="down", name=f"as good as {best}", points=[[0]], colour="capacity"))
    x = Axis(label="loss above the best, 95 % interval", unit="number")
    return Chart(
        title="Distance to the best",
        caption="Measured. An interval that holds zero may be no difference at all.",
        views=[View(x=x, y=NO_AXIS, layers=layers, pointer="point")],
        detail=True,
    )


def _models(found: Comparison) -> Table:
    tokens = {model.tokens for model in found.models}
    same = f"; {format_count(found.models[0].tokens)} tokens each" if len(tokens) == 1 else ""
    return table_of(
        found.models,
        [
            (Column("model", left=True), lambda m: m.model),
            (Column("seeds"), lambda m: str(len(m.seeds))),
            (Column(found.metric), lambda m: f"{m.mean_last_loss:.4f}"),
            (Column("±"), lambda m: number(_noise(m), ".4f")),
            (
                Column("params"),
                lambda m: "" if m.parameters is None else format_count(m.parameters),
            ),
            (Column("tokens"), lambda m: "" if same else format_count(m.tokens)),
            (Column("tok/s"), lambda m: number(m.tokens_per_second, ",.0f")),
            (Column("memory"), lambda m: size(m.peak_memory_bytes)),
            (Column("time"), lambda m: duration(m.training_seconds)),
        ],
        title="Models, best first",
        notes=[f"±: the spread over seeds, or of one seed the noise of its mean{same}"],
        origin=MEASURED,
        samples=_samples(found),
    )


def _noise(model: ModelResult) -> float | None:
    return model.spread if model.spread is not None else model.noise


def _samples(found: Comparison) -> str:
    return count(sum(len(model.seeds) for model in found.models), "run")
