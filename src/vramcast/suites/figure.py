"""One figure: predicted against measured, all methods. Needs matplotlib (the extra `accuracy`)."""

from __future__ import annotations

import io
from pathlib import Path

from vramcast.errors import EnvironmentProblem
from vramcast.records.accuracy import METHODS, AccuracyResult
from vramcast.records.store import write_atomically

STYLES = {
    "vramcast": ("#1a7f37", "o"),
    "memtracker": ("#0969da", "s"),
    "accelerate": ("#bf8700", "^"),
    "four_times_parameters": ("#cf222e", "x"),
}
GiB = 2**30


def write_figure(result: AccuracyResult, path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentProblem(
            "The figure needs matplotlib.", "pip install 'vramcast[accuracy]', or leave it out."
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in result.rows if row.measured_reserved_bytes]
    figure, axes = pyplot.subplots(figsize=(7, 6))
    largest = max((row.measured_reserved_bytes or 0 for row in rows), default=GiB) / GiB
    line = [
        min((row.measured_reserved_bytes or GiB for row in rows), default=GiB) / GiB * 0.7,
        largest * 1.4,
    ]
    axes.plot(line, line, color="0.6", linewidth=1, label="exact")
    for method in reversed(result.reserved):  # ours last, on top
        colour, marker = STYLES[method]
        points = [
            (row.measured_reserved_bytes / GiB, predicted / GiB)
            for row in rows
            if row.measured_reserved_bytes
            and (
                predicted := row.predicted_reserved_bytes
                if method == "vramcast"
                else row.peers_bytes.get(method)
            )
            is not None
        ]
        median = result.reserved[method].median
        label = (
            METHODS[method]
            if median is None
            else f"{METHODS[method]} (median error {median:.3g} %)"
        )
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=22,
            color=colour,
            marker=marker,
            label=label,
            alpha=0.8,
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="measured peak reserved memory [GiB]",
        ylabel="said by the method [GiB]",
    )
    axes.set_title(f"{len(rows)} training steps on {result.gpu}: predicted against measured")
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    file = io.BytesIO()
    figure.savefig(
        file,
        format=path.suffix.lstrip(".") or "svg",
        metadata={"Date": None} if path.suffix == ".svg" else None,
    )
    pyplot.close(figure)
    write_atomically(path, file.getvalue())
