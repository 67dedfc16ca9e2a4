"""Charts as SVG, PNG or PDF files, for papers. Needs matplotlib (the extra `accuracy`)."""

import io
import re
from functools import cache
from operator import add
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.records.store import write_atomically
from vramcast.reporting.html import asset
from vramcast.reporting.sections import Axis, Chart, Layer, Report, View
from vramcast.text import printable
from vramcast.units import GiB

DECADES = 300  # an axis with a wider range has powers of ten as ticks
MOST_LABELS = 40  # characters of a bar's label


@cache
def _colours() -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#\w+)", asset("page.css").partition("@media")[0]))


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Writes one SVG file for each view of every chart, except views of single allocations."""
    figures = [figure for section in report.sections for figure in section.figures]
    charts = [figure for figure in figures if isinstance(figure, Chart)]
    written = []
    for number, chart in enumerate(charts, 1):
        for view in (each for each in chart.views if each.pointer != "piece"):
            name = re.sub(r"[^a-z0-9]+", "-", f"{chart.title} {view.name}".lower()).strip("-")[:80]
            written.append(folder / f"{number:02d}-{name}.svg")
            write_view(chart, view, written[-1])
    return written


def write_view(chart: Chart, view: View, path: Path) -> None:
    """Writes a view in the format of the path's ending."""
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentProblem(
            "Figures need matplotlib, which is not installed.",
            "pip install 'vramcast[accuracy]', or leave the figures out.",
        ) from None
    matplotlib.use("Agg")
    write_atomically(path, _drawn(chart, view, path.suffix.lstrip(".")))


def _drawn(chart: Chart, view: View, form: str) -> bytes:
    from matplotlib import pyplot

    rows = {point[0] for layer in view.layers if layer.kind == "bar" for point in layer.points}
    with pyplot.rc_context({"svg.hashsalt": "vramcast", "font.size": 9, "text.parse_math": False}):
        figure, axes = pyplot.subplots(figsize=(7, max(2.2, 0.6 + 0.26 * len(rows)) if rows else 4))
        tops: list[float] = []
        for layer in view.layers:
            _draw(axes, layer, view, tops)
        axes.set_xlabel(_label(view.x))
        if rows:
            axes.invert_yaxis()
        else:
            axes.set_ylabel(_label(view.y))
        _set_log_scales(axes, view)
        title = f"{chart.title}: {view.name}" if len(chart.views) > 1 else chart.title
        axes.set_title(printable(title), fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        if len(view.layers) > 1:
            # All layers of the same name share one entry.
            handles, labels = axes.get_legend_handles_labels()
            named = dict(zip(labels, handles, strict=True))
            axes.legend(named.values(), named, fontsize=7, frameon=False)
        file = io.BytesIO()
        # Without the date, the same chart gives the same file.
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(file, format=form, metadata=metadata, bbox_inches="tight")
        pyplot.close(figure)
    return file.getvalue()


def _set_log_scales(axes: Any, view: View) -> None:
    for axis, scale, drawn in (
        (view.x, axes.set_xscale, axes.xaxis),
        (view.y, axes.set_yscale, axes.yaxis),
    ):
        if axis.log:
            low, high = drawn.get_view_interval()
            scale("log", base=10 if high > DECADES * max(low, 1e-12) else 2)
            drawn.set_major_formatter("{x:g}")
            drawn.set_minor_formatter("")


def _label(axis: Axis) -> str:
    unit = {"bytes": "GiB", "seconds": "s", "percent": "%"}.get(axis.unit)
    return f"{axis.label} [{unit}]" if unit else axis.label


def _scaled(value: Any, axis: Axis) -> Any:
    return value / GiB if axis.unit == "bytes" else value


def _draw(axes: Any, layer: Layer, view: View, tops: list[float]) -> None:
    """Draws a layer. `tops` are the tops of the areas so far, on which the next area lies."""
    style = {"color": _colours()[layer.colour], "label": printable(layer.name)}
    dashes = "--" if layer.dashed else "-"
    if layer.kind == "bar":
        _bars(axes, layer, view, style)
    elif layer.kind == "limit":
        for _, at, _, rank in layer.points:
            axes.plot([_scaled(at, view.x)] * 2, [rank - 0.42, rank + 0.42], linewidth=2, **style)
            style.pop("label", None)
    elif layer.kind == "band":
        for begin, end in layer.points:
            edges = _scaled(begin, view.x), _scaled(end, view.x)
            axes.axvspan(*edges, alpha=0.15, linewidth=0, **style)
    elif layer.kind == "across":
        axes.axhline(_scaled(layer.points[0][0], view.y), linestyle="--", linewidth=1, **style)
    elif layer.kind == "down":
        axes.axvline(_scaled(layer.points[0][0], view.x), linestyle=":", linewidth=1, **style)
    else:
        xs = [_scaled(point[0], view.x) for point in layer.points]
        ys = [_scaled(point[1], view.y) for point in layer.points]
        if layer.kind == "area":
            base = [*tops] or [0.0] * len(ys)
            tops[:] = map(add, base, ys)
            axes.fill_between(xs, base, tops, step="post", linewidth=0, alpha=0.85, **style)
        elif layer.kind == "dot":
            axes.scatter(xs, ys, s=14, zorder=3, **style)
        elif layer.kind == "step":
            axes.step(xs, ys, where="post", linestyle=dashes, linewidth=1.1, **style)
        else:
            axes.plot(xs, ys, linestyle=dashes, linewidth=1.3, **style)


def _bars(axes: Any, layer: Layer, view: View, style: dict[str, str]) -> None:
    for label, start, end, rank in layer.points:
        low, high = _scaled(start, view.x), _scaled(end, view.x)
        axes.barh(rank, high - low, left=low, height=0.7, **style)
        style.pop("label", None)
        place = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
        axes.text(-0.01, rank, printable(str(label))[:MOST_LABELS], fontsize=7, **place)
    axes.set_yticks([])
