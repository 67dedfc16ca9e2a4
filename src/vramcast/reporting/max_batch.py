"""The largest batch as sections: memory and throughput by batch size, and what to choose."""

from collections.abc import Sequence
from typing import Any

from vramcast.records.measurement import Measurement
from vramcast.records.prediction import Attempt, MaxBatch, MemoryLaw, Speed
from vramcast.reporting import sections as page
from vramcast.reporting.laws import batch_calculator
from vramcast.reporting.prediction import largest_table, where_of

FITS = {"ok": "yes", "out_of_memory": "OOM"}
LATE = "slower than shown"
CHOICES = ("maximum", "recommended", "conservative", "fastest", "knee")


def of_max_batch(result: MaxBatch, measured: Sequence[Measurement] = ()) -> list[page.Section]:
    """`measured` may have any batch size."""
    confirmed = "Sizes marked measured were run on the GPU, the others are predicted"
    how = confirmed if result.confirmed else "All numbers are predicted"
    memory = page.Section(
        kind="Largest batch",
        title=result.workload,
        knobs=result.knobs,
        verdict=_verdict(result),
        text=[
            _law("allocated", result.allocated_law),
            _law("reserved", result.reserved_law),
            *(f"what would help: {advice}" for advice in result.advice),
        ],
        parts=[
            _memory_chart(result, measured),
            batch_calculator(result),
            _choices(result),
            _attempts(result),
            largest_table(result.largest_tensors, "Largest in memory at the smallest batch"),
        ],
        notes=result.notes,
        limits=result.limits,
        made=f"{how} (torch {result.torch_version}, {result.seconds:.1f} s to predict).",
    )
    return [memory, _speed(result)] if result.speeds else [memory]


def _verdict(result: MaxBatch) -> page.Remark:
    where = where_of(result.gpu, result.capacity_bytes)
    failing = result.first_failing_batch
    if result.largest_batch is None:
        missing = page.given(": {} are missing", page.size(result.missing_bytes))
        return page.bad(f"not even {failing} fits on {where}{missing}")
    source = "measured" if result.confirmed else "predicted"
    beyond = page.given("{} does not fit", failing) or "no larger one was tried"
    return page.good(f"largest batch on {where}: {result.largest_batch} ({source}); {beyond}")


def _law(name: str, law: MemoryLaw | None) -> str:
    if law is None:
        return ""
    constant, each = page.size(law.intercept_bytes), page.size(law.bytes_per_sample)
    return f"{name} = {constant} + {each} per sample ({law.reach})"


def _memory_chart(result: MaxBatch, measured: Sequence[Measurement]) -> page.Chart:
    far = 2 * (result.largest_batch or 1)
    near = sorted((a for a in result.attempts if a.batch_size <= far), key=lambda a: a.batch_size)

    def line(name: str, law: MemoryLaw | None) -> page.Layer:
        ends = [near[0].batch_size, near[-1].batch_size] if near else []
        points = [[end, law.intercept_bytes + law.bytes_per_sample * end] for end in ends if law]
        return page.Layer("line", f"{name}: the law (predicted)", points, name)

    def dots(name: str, colour: str, source: str, fits: Sequence[bool]) -> page.Layer:
        return page.layer_of(
            "dot",
            f"reserved ({source}){name}",
            colour,
            [a for a in near if a.source == source and (a.outcome == "ok") in fits],
            ("batch_size", "peak_reserved_bytes"),
            _source,
            lambda a: f"retries: {a.num_alloc_retries}",
        )

    runs = [[m.knobs.get("batch_size"), m.peak_reserved_bytes] for m in measured]
    probed = sorted(run for run in runs if isinstance(run[0], int) and run[1] is not None)
    layers = [
        line("reserved", result.reserved_law),
        line("allocated", result.allocated_law),
        dots(", fits", "good", "predicted", [True]),
        dots(", does not fit", "bad", "predicted", [False]),
        dots("", "measured", "measured", [True, False]),
        page.Layer("dot", "reserved (measured by probe)", probed, "measured"),
        page.Layer("across", "capacity", [[result.capacity_bytes]], "capacity"),
        _mark("largest batch", result.largest_batch, "peak"),
    ]
    run = "Measured sizes were run on the" if result.confirmed else "No size was run on a"
    left_out = len(result.attempts) - len(near)
    verb = "is" if left_out == 1 else "are"
    beyond = (
        f" {page.count(left_out, 'size')} far beyond the largest batch {verb} in the table only."
    )
    return page.chart(
        "Memory against batch size",
        f"Predicted. {run} GPU.{beyond if left_out else ''}",
        page.View(page.BATCH_AXIS, page.MEMORY_AXIS, layers),
    )


def _mark(name: str, size: int | None, colour: str) -> page.Layer:
    return page.Layer("down", f"{name}: {size}", [] if size is None else [[size]], colour)


def _source(a: Attempt) -> str:
    return a.source if a.simulated else "interpolated"


def _choices(result: MaxBatch) -> page.Table:
    rows = [
        [name, str(choice.batch_size), choice.reason]
        for name in CHOICES
        if (choice := getattr(result, name))
    ]
    if result.micro_batch is not None:
        why = f"{result.accumulation_steps} steps of it make a batch of {result.global_batch}"
        rows.append(["micro-batch", str(result.micro_batch), why])
    return page.Table(
        title="What to choose",
        columns=("choice", "batch", "why"),
        left=("choice", "why"),
        rows=rows,
        **_basis(result),
    )


def _attempts(result: MaxBatch) -> page.Table:
    def share(a: Attempt) -> float:
        return (a.peak_reserved_bytes or 0) / result.capacity_bytes

    attempts = sorted(result.attempts, key=lambda a: (a.batch_size, a.source))
    tones = [page.Tone.GOOD if a.outcome == "ok" else page.Tone.BAD for a in attempts]
    return page.table_of(
        attempts,
        {
            "batch": "batch_size",
            "fits": lambda a: FITS.get(a.outcome or "", str(a.outcome).replace("_", " ")),
            "allocated": "peak_allocated_bytes",
            "reserved": "peak_reserved_bytes",
            "share": lambda a: page.share(share(a) or None),
            "retries": "num_alloc_retries",
            "step": "step_seconds",
            "source": _source,
        },
        left=("source",),
        title="Search",
        bars=list(zip(map(share, attempts), tones, strict=True)),
        tones=tones,
        **_basis(result),
    )


def _basis(result: MaxBatch) -> dict[str, Any]:
    run = sum(a.source == "measured" for a in result.attempts)
    simulated = sum(a.simulated and a.source == "predicted" for a in result.attempts)
    return {
        "origin": "predicted, and measured where it says so" if run else page.PREDICTED,
        "samples": f"{page.count(simulated, 'size')} simulated, {run} run on a GPU",
    }


def _speed(result: MaxBatch) -> page.Section:
    sources = ", ".join(dict.fromkeys(speed.source for speed in result.speeds))
    slower = [s for s in result.speeds if s.empties_cache]
    timed = [s for s in result.speeds if not s.empties_cache]
    axes = ("batch_size", "samples_per_second")
    bound = "source", lambda s: f"bound by {s.bound_by}"
    marks = {"knee": result.knee, "fastest": result.fastest}
    sizes = {name: choice.batch_size for name, choice in marks.items() if choice}
    chart = page.chart(
        "Throughput",
        f"{sources.capitalize()}. "
        "The knee is the smallest size with 95 % of the most samples a second.",
        page.View(
            page.BATCH_AXIS,
            page.Axis("samples a second"),
            [
                page.layer_of("line", f"samples a second ({sources})", "allocated", timed, axes),
                page.layer_of("dot", "timed", "good", timed, axes, *bound),
                page.layer_of("dot", f"empties the cache: {LATE}", "bad", slower, axes),
                _mark("knee", sizes.get("knee"), "peak"),
                _mark("fastest", sizes.get("fastest"), "measured"),
            ],
        ),
    )

    def note(speed: Speed) -> str:
        names = [name for name, size in sizes.items() if size == speed.batch_size]
        return ", ".join([*names, LATE] if speed.empties_cache else names)

    most = max(speed.samples_per_second for speed in result.speeds) or 1
    table = page.table_of(
        result.speeds,
        {
            "batch": "batch_size",
            "step": "step_seconds",
            "90 % within": lambda s: page.between(s.step_seconds_low, s.step_seconds_high),
            "samples/s": "samples_per_second:,.4g",
            "source": "source",
            "bound by": "bound_by",
            "note": note,
        },
        left=("source", "bound by", "note"),
        title="Samples a second",
        bars=[
            (s.samples_per_second / most, page.Tone.UNSURE if s.empties_cache else page.Tone.GOOD)
            for s in result.speeds
        ],
        notes=[f"{LATE}: it fits only because the allocator empties its cache"] if slower else [],
        origin=sources,
        samples=page.count(len(result.speeds), "size"),
    )
    return page.Section(title="Throughput against batch size", parts=[chart, table])
