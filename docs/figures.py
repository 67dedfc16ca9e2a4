"""The figures of docs/how-it-works.md, one for each idea, as SVG files in docs/figures.

Sizes in them are those of a stored prediction, `tests/reporting/records/prediction.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from blocks import DOCS, ROOT

from vramcast.records.prediction import Prediction
from vramcast.units import GiB, format_bytes

FOLDER = DOCS / "figures"
RECORD = ROOT / "tests" / "reporting" / "records" / "prediction.json"
WIDTH = 760
INK, QUIET, LINE = "#1f2328", "#57606a", "#8c959f"
BLUE, GREEN, RED, GREY, YELLOW = "#c7dcf5", "#cfe8cf", "#f3c9c2", "#e6e6e2", "#f6e3b4"


def text(
    x: float, y: float, words: str, *, size: int = 14, colour: str = INK, to: str = "middle"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{to}">{escape(words)}</text>'
    )


def box(
    x: float, y: float, width: float, height: float, fill: str, *lines: str, corner: int = 6
) -> str:
    """With its first line in full size and the others smaller, in the middle."""
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner}" '
        f'fill="{fill}" stroke="{LINE}"/>'
    ]
    top = y + height / 2 + 5 - 9 * (len(lines) - 1)
    for index, line in enumerate(lines):
        size, colour = (14, INK) if index == 0 else (12, QUIET)
        parts.append(text(x + width / 2, top + 18 * index, line, size=size, colour=colour))
    return "".join(parts)


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{QUIET}" '
        'stroke-width="1.6" marker-end="url(#tip)"/>'
    )


def figure(height: int, title: str, *parts: str) -> str:
    """On a ground of its own: readable in light and in dark pages."""
    tip = (
        '<marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{QUIET}"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>'
        f'<defs>{tip}</defs><rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def four_numbers(p: Prediction) -> str:
    """Bars on one scale, each inside the next."""
    total = p.capacity_bytes + (p.process_bytes or 0) - p.peak_reserved_bytes
    rows = (
        ("allocated: tensors", p.peak_allocated_bytes, BLUE),
        ("reserved: with the allocator's cache", p.peak_reserved_bytes, GREEN),
        ("process: with the CUDA context", p.process_bytes or 0, YELLOW),
        (f"the GPU ({p.gpu})", total, GREY),
    )
    parts = []
    for index, (name, num_bytes, colour) in enumerate(rows):
        y = 18 + 44 * index
        parts.append(box(300, y, 380 * num_bytes / total, 30, colour, corner=3))
        parts.append(text(288, y + 20, name, to="end"))
        parts.append(text(310, y + 20, format_bytes(num_bytes), to="start"))
    return figure(200, "Four numbers that are all called memory, of one prediction", *parts)


def pipeline() -> str:
    stages = (
        ("your program", ("runs in real torch,", "no line changed"), BLUE),
        ("simulated GPU", ("kernels allocate", "and compute nothing"), GREEN),
        ("events", ("+1 +2 -1 +3 ...", "sizes, lines, operators"), YELLOW),
        ("allocator", ("blocks and segments,", "as torch's own"), GREEN),
        ("answer", ("peaks, what is alive,", "what fails, time"), BLUE),
    )
    parts = []
    for index, (name, lines, colour) in enumerate(stages):
        x = 10 + 150 * index
        parts.append(box(x, 30, 138, 90, colour, name, *lines))
        if index:
            parts.append(arrow(x - 11, 75, x - 1, 75))
    return figure(150, "From your program to events, to the allocator, to the answer", *parts)


def layers() -> str:
    """Where an operator of torch is caught."""
    rows = (
        ("your code: loss.backward(), optimizer.step()", BLUE),
        ("autograd, autocast, hooks, checkpointing: torch's own, running", BLUE),
        ("dispatcher", GREY),
    )
    parts = [box(20, 16 + 46 * i, 720, 34, colour, name) for i, (name, colour) in enumerate(rows)]
    parts.append(
        box(20, 180, 340, 52, RED, "on a GPU: the CUDA kernel", "allocates, then computes")
    )
    parts.append(
        box(400, 180, 340, 52, GREEN, "here: simulate()", "allocates the same, computes nothing")
    )
    parts += [arrow(190, 144, 190, 178), arrow(570, 144, 570, 178)]
    return figure(250, "The simulated GPU stands in the place of the CUDA kernels", *parts)


def blocks() -> str:
    """Why a free piece cannot serve a request that is a little larger."""
    rows = (
        (
            "segment 1",
            ((240, "in use", BLUE), (150, "free: 100 MiB", "#ffffff"), (230, "in use", BLUE)),
        ),
        ("segment 2", ((150, "free: 100 MiB", "#ffffff"), (470, "in use", BLUE))),
        ("new segment", ((156, "101 MiB", RED), (464, "free", "#ffffff"))),
    )
    parts = []
    for index, (name, pieces) in enumerate(rows):
        y, x = 18 + 54 * index, 120.0
        parts.append(text(108, y + 24, name, to="end"))
        for width, words, colour in pieces:
            parts.append(box(x, y, width, 38, colour, words, corner=2))
            x += width
    parts.append(
        text(
            WIDTH / 2,
            196,
            "200 MiB are free, and a request for 101 MiB takes a new segment: reserved grows.",
            colour=QUIET,
        )
    )
    return figure(214, "Fragmentation: free pieces that are too small", *parts)


def through_step(p: Prediction) -> str:
    memory = p.step_memory
    assert memory is not None
    left, right, top, bottom = 60, 740, 24, 250
    most, end = p.capacity_bytes or 1, memory.num_events

    def at(event: float, num_bytes: float) -> tuple[float, float]:
        x = left + (right - left) * event / end
        return round(x, 1), round(bottom - (bottom - top) * num_bytes / most, 1)

    def line(column: str, colour: str) -> str:
        place = memory.columns.index(column)
        points = _steps([at(point[0], point[place]) for point in memory.points])
        shown = " ".join(f"{x},{y}" for x, y in points)
        return f'<polyline points="{shown}" fill="none" stroke="{colour}" stroke-width="2"/>'

    peak = memory.points[memory.peak_point]
    x, y = at(peak[0], peak[1])
    ticks = [
        text(left - 8, at(0, size * GiB)[1] + 4, f"{size} GiB", size=12, colour=QUIET, to="end")
        for size in range(0, 21, 5)
    ]
    capacity = f"capacity {format_bytes(most)}"
    parts = [
        f'<line x1="{left}" y1="{top}" x2="{right}" y2="{top}" stroke="#b3362c" '
        'stroke-dasharray="6 4"/>',
        text(right, top - 6, capacity, size=12, colour="#b3362c", to="end"),
        line("reserved", "#57606a"),
        line("allocated", "#2f6fb5"),
        f'<circle cx="{x}" cy="{y}" r="4" fill="#b3362c"/>',
        text(x + 10, y + 4, f"peak {format_bytes(peak[1])}", size=12, colour="#b3362c", to="start"),
        text(right, at(0, peak[2])[1] - 8, "reserved", size=12, colour=QUIET, to="end"),
        text(left + 70, at(0, 6 * GiB)[1], "allocated", size=12, colour="#2f6fb5"),
        text(WIDTH / 2, 276, "allocations and frees of one training step", size=12, colour=QUIET),
    ]
    return figure(290, "Memory through a training step, predicted", *ticks, *parts)


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Memory stays as it is until the next event."""
    drawn = [points[0]]
    for x, y in points[1:]:
        drawn += [(x, drawn[-1][1]), (x, y)]
    return drawn


def time() -> str:
    """The host launches, the GPU works; which of them waits decides the step's time."""
    parts = []
    cases = (
        (
            18,
            "the GPU is busy",
            [(120 + 46 * i, 40) for i in range(5)],
            [(140 + 118 * i, 112) for i in range(5)],
        ),
        (
            128,
            "the GPU waits",
            [(120 + 118 * i, 112) for i in range(5)],
            [(232 + 118 * i, 34) for i in range(5)],
        ),
    )
    for y, name, host, device in cases:
        parts.append(text(WIDTH - 16, y + 8, name, to="end", size=13, colour=QUIET))
        parts.append(text(108, y + 34, "host", to="end"))
        parts.append(text(108, y + 72, "GPU", to="end"))
        parts += [box(x, y + 16, width, 26, YELLOW, corner=2) for x, width in host]
        parts += [box(x, y + 54, width, 26, GREEN, corner=2) for x, width in device]
    return figure(236, "A step takes as long as the slower of host and GPU", *parts)


def texts() -> dict[str, str]:
    """Every figure, by the name of its file."""
    p = Prediction.from_file(RECORD)
    return {
        "four-numbers.svg": four_numbers(p),
        "pipeline.svg": pipeline(),
        "layers.svg": layers(),
        "fragmentation.svg": blocks(),
        "step.svg": through_step(p),
        "time.svg": time(),
    }
