"""Laws of memory: as sliders in the page, and those of `vramcast fit` as sections."""

from collections.abc import Mapping

from vramcast.hardware.gpus import find_gpu
from vramcast.records.fit import Knob, MemoryFit, parse_term
from vramcast.records.prediction import MaxBatch
from vramcast.reporting import sections as page

# The GPUs people ask about, smallest first.
GPUS = (
    *("rtx-4070-ti", "rtx-4080", "rtx-4090", "rtx-5090", "a100-40gb"),
    *("l40s", "a100-80gb", "h100-80gb", "h200", "b200"),
)


def _gpus_beside(own: Mapping[str, int]) -> list[tuple[str, int]]:
    """These GPUs and others, with the memory that the allocator may take there."""
    others = {name: find_gpu(name).usable_bytes for name in GPUS if name not in own}
    return sorted({**others, **own}.items(), key=lambda item: item[1])


def calculator_of(
    found: MemoryFit, title: str, own: Mapping[str, int], start: Mapping[str, int]
) -> page.Calculator | None:
    """Sliders for this law. None where no knob varies."""
    moving = [knob for knob in found.knobs if knob.largest > knob.smallest]
    if not moving:
        return None
    sizes = [row.measured_reserved_bytes for row in found.rows]
    worst = max(found.rows, key=lambda row: abs(row.error_percent))
    times = 1 + found.overhead_share
    return page.Calculator(
        title=title,
        caption=f"Computed from a law that was fitted to {page.count(len(sizes), 'size')}. "
        f"{_largest_error(worst.name, abs(worst.error_percent))}",
        terms=[
            (times * found.coefficients[name], parse_term(text))
            for name, text in found.terms.items()
        ],
        fixed={knob.name: knob.smallest for knob in found.knobs if knob not in moving},
        floor_bytes=round(times * (found.floor_bytes or 0)),
        overhead_bytes=found.overhead_bytes,
        known_bytes=(min(sizes), max(sizes)),
        sliders=[_slider(knob, start) for knob in sorted(moving, key=lambda knob: knob.name)],
        gpus=_gpus_beside(own),
    )


def _largest_error(name: str, error_percent: float) -> str:
    if error_percent < 0.005:
        return "It goes through all of them."
    return f"It is off most, by {error_percent:.2f} %, at {name}."


def _slider(knob: Knob, start: Mapping[str, int]) -> page.Slider:
    name, smallest, largest = knob.name, int(knob.smallest), int(knob.largest)
    if name == "batch_size":
        return page.Slider(name, 1, largest, start.get(name, largest))
    # The largest power of two that divides both ends: lengths are mostly multiples of one.
    step = (smallest | largest) & -(smallest | largest)
    return page.Slider(name, smallest, largest, start.get(name, smallest), step)


def batch_calculator(result: MaxBatch) -> page.Calculator | None:
    law = result.reserved_law
    if law is None:
        return None
    sizes = [a.peak_reserved_bytes for a in result.attempts if a.peak_reserved_bytes is not None]
    largest = result.largest_batch or 1
    start = result.recommended or result.maximum
    value = start.batch_size if start else largest
    # Below the sizes that the law was fitted to, the optimizer may set the peak.
    smallest = min(law.smallest_batch or 1, value)
    return page.Calculator(
        title="Memory for a batch size",
        caption=f"Computed from the predicted law, which is {law.reach}. It does not know when "
        "the allocator empties its cache: near the edge more may fit.",
        terms=[(law.intercept_bytes, 1), (law.bytes_per_sample, "batch_size")],
        known_bytes=(min(sizes, default=0), max(sizes, default=0)),
        sliders=[page.Slider("batch_size", smallest, max(4 * largest, 8), value)],
        gpus=_gpus_beside({result.gpu or "the given memory": result.capacity_bytes}),
    )


def of_fit(found: MemoryFit) -> list[page.Section]:
    terms = found.terms.items()
    law = " + ".join(f"{found.coefficients[name]:.6g} x ({text})" for name, text in terms)
    if found.floor_bytes is not None:
        law = f"the larger of {page.size(found.floor_bytes)} and {law}"
    runs, num_terms = page.count(len(found.rows), "run"), page.count(len(terms), "term")
    knobs = page.table_of(
        found.knobs,
        {
            "knob": "name",
            "saved at the smallest": lambda knob: page.share(knob.share),
            "measured from": "smallest:g",
            "to": "largest:g",
        },
        left=("knob",),
        title="What each knob takes",
        origin=page.FITTED,
        samples=f"of the largest of {runs}",
    )
    return [
        page.Section(
            kind="Fitted law",
            title=found.group or "all runs",
            verdict=page.Remark(f"allocated = {law}"),
            text=[
                f"reserved = allocated + {_overhead(found)} (median overhead)",
                f"errors of allocated, without the overhead: {_worst(found)}",
            ],
            parts=[
                _errors(found),
                calculator_of(found, "Memory for other knobs", {}, {}),
                _rows(found, f"{runs} for {num_terms}"),
                knobs,
            ],
            notes=[*(f"not used: {why}" for why in found.left_out.values()), *found.notes],
            made=f"Fitted to {runs} with {num_terms}.",
        )
    ]


def _overhead(found: MemoryFit) -> str:
    if share := found.overhead_share:
        return f"{100 * share:.1f} % of it"
    return page.size(found.overhead_bytes)


def _worst(found: MemoryFit) -> str:
    inside = f"at most {max(abs(row.allocated_error_percent) for row in found.rows):.2f} %"
    left_out = [
        abs(error)
        for row in found.rows
        if (error := row.left_out_allocated_error_percent) is not None
    ]
    return f"{inside}, {max(left_out):.2f} % for a run left out of the fit" if left_out else inside


def _errors(found: MemoryFit) -> page.Chart | None:
    """A chart of the errors. None with as many terms as runs, where every error is zero."""
    if len(found.rows) <= len(found.terms):
        return None

    def view(name: str, field: str, colour: str) -> page.View:
        bars = [
            page.Bar(name, row.name, 0, error, [page.percent(error)])
            for row in found.rows
            if (error := getattr(row, field)) is not None
        ]
        x = page.Axis("error of reserved", "percent")
        return page.bar_view(x, bars, {name: colour}, name)

    return page.chart(
        "Error at every run",
        "Fitted against measured: the error at every run, left out of the fit and in it.",
        view("left out of the fit", "left_out_error_percent", "reserved"),
        view("in the fit", "error_percent", "fitted"),
    )


def _rows(found: MemoryFit, samples: str) -> page.Table:
    has_floor = found.floor_bytes is not None
    return page.table_of(
        found.rows,
        {
            "run": "name",
            "measured reserved": "measured_reserved_bytes",
            "fitted": "fitted_reserved_bytes",
            "error": "error_percent",
            "left out": "left_out_error_percent",
            "allocated": "allocated_error_percent",
            "by": lambda row: ("floor" if row.on_floor else "law") if has_floor else "",
        },
        left=("run", "by"),
        title="Runs, and the errors of the law",
        origin=f"measured, and {page.FITTED} where a column says so",
        samples=samples,
    )
