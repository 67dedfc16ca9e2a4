"""Which of several trained models is better, as sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramcast.records.bench import Comparison, Difference
from vramcast.reporting import sections as page


def of_comparison(found: Comparison) -> list[page.Section]:
    best = found.models[0].model
    first, *others = (_remark(best, difference) for difference in found.differences)
    return [
        page.Section(
            kind="Which is better",
            title=f"{found.metric} under {found.protocol}, best first",
            verdict=first,
            parts=[*others, _gaps(found.differences, best), _models(found)],
            notes=found.notes,
            made=f"Measured on {found.data}.",
        )
    ]


def _remark(best: str, d: Difference) -> page.Remark:
    low, high = d.interval
    numbers = f"by {d.difference:.4f} (95 %: {low:.4f} to {high:.4f}, p = {d.p_value:.2g}; {d.how})"
    if d.distinguishable:
        return page.good(f"{best} is better than {d.model} {numbers}")
    return page.unsure(f"≈ {best} and {d.model} are not distinguishable: they differ {numbers}")


def _gaps(differences: Sequence[Difference], best: str) -> page.Chart:
    bars = [
        page.Bar(
            "distinguishable" if d.distinguishable else "not distinguishable",
            d.model,
            *d.interval,
            [f"{d.difference:+.4f}", f"p = {d.p_value:.2g}", d.how],
        )
        for d in differences
    ]
    colours = {"distinguishable": "good", "not distinguishable": "unsure"}
    view = page.bar_view(page.Axis("loss above the best, 95 % interval"), bars, colours)
    best_line = page.Layer("down", f"as good as {best}", [[0]], "capacity")
    return page.chart(
        "Distance to the best",
        "Measured. An interval that holds zero may be no difference at all.",
        replace(view, layers=[*view.layers, best_line]),
    )


def _models(found: Comparison) -> page.Table:
    tokens = {model.tokens for model in found.models}
    same = f"; {page.amount(*tokens)} tokens each" if len(tokens) == 1 else ""
    return page.table_of(
        found.models,
        {
            "model": "model",
            "seeds": lambda m: str(len(m.seeds)),
            found.metric: "mean_last_loss:.4f",
            "±": lambda m: page.number(m.noise if m.spread is None else m.spread, ".4f"),
            "params": "parameters",
            "tokens": lambda m: "" if same else page.amount(m.tokens),
            "tok/s": "tokens_per_second:,.0f",
            "memory": "peak_memory_bytes",
            "time": "training_seconds",
        },
        left=("model",),
        title="Models, best first",
        notes=[f"±: the spread over seeds, or of one seed the noise of its mean{same}"],
        origin=page.MEASURED,
        samples=page.count(sum(len(model.seeds) for model in found.models), "run"),
    )
