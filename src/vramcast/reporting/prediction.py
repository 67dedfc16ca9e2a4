"""A prediction, with measurements of the workload, as sections."""

from collections.abc import Sequence

from vramcast.records.accuracy import percent_off
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import (
    BoundBy,
    LargeTensor,
    PhaseName,
    Prediction,
)
from vramcast.reporting import sections as page
from vramcast.reporting.alive import alive_bars, alive_tree, categories_of
from vramcast.reporting.compiled import compiled_lines
from vramcast.reporting.failure import growth_lines, why_not
from vramcast.reporting.phases import phases_table
from vramcast.reporting.ranks import RankBar, ranks_chart
from vramcast.reporting.segments import segments_chart
from vramcast.reporting.step_chart import bands_of, run_chart, step_chart
from vramcast.reporting.tensors import colour_of, operator_of, shape_of, what_of, words

ONE_RUN = "one simulated run"
BOUND_BY = {
    "compute": "arithmetic takes most of it",
    "bandwidth": "memory bandwidth takes most of it",
    "launch": "launching kernels from the host takes most of it",
}


def of_prediction(
    p: Prediction, measured: Sequence[Measurement] = (), overlay: Sequence[page.Layer] = ()
) -> list[page.Section]:
    """The sections. `overlay` is the measured memory through the step."""
    meter = page.Meter(
        title="Reserved at the peak (predicted)",
        parts=[(words(name), size, colour_of(name)) for name, size in categories_of(p)],
        capacity_bytes=p.capacity_bytes,
        capacity_name=p.gpu or "the given memory",
    )
    over_time = [_through_step(p, measured, overlay), run_chart(p) if p.timeline else None]
    largest = largest_table(p.largest_tensors, "Largest tensors at the peak")
    sections = [
        page.Section(
            kind="Predicted",
            title=p.workload,
            knobs=p.knobs,
            verdict=_verdict(p),
            text=[_step_time(p), *compiled_lines(p), *_attention(p), *p.notes],
            parts=[
                page.limit("--max", "the peak", p.max_bytes, p.over_max_bytes),
                *why_not(p),
                *map(page.unsure, growth_lines(p.growth)),
                meter,
                _totals(p, measured),
                _phases(p),
                _ranks(p),
                ranks_chart(_rank_bars(p), p.capacity_bytes, page.PREDICTED),
                _communication(p),
            ],
            limits=p.limits,
            made=page.predicted_with(p, "Predicted" if measured else "All numbers are predicted"),
        ),
        page.Section(title="Memory over time", parts=over_time),
        page.Section(
            title="What is alive at the peak",
            parts=[alive_tree(p), alive_bars(p), segments_chart(p), _breakdown(p), largest],
        ),
    ]
    return [section for section in sections if section.figures or section.tables]


def where_of(gpu: str | None, capacity_bytes: int, spared: str = "") -> str:
    return f"{gpu or 'the given memory'} ({page.size(capacity_bytes)} for the allocator{spared})"


def _verdict(p: Prediction) -> page.Remark:
    needed = page.size(p.peak_reserved_bytes)
    if p.capacity_bytes is None:
        return page.Remark(
            f"takes {needed} (predicted); give --gpu NAME or --memory SIZE to see whether it fits"
        )
    where = where_of(p.gpu, p.capacity_bytes)
    if not p.fits:
        failed = page.given("; an allocation of {} fails", page.size(p.failed_allocation_bytes))
        return page.bad(f"does not fit on {where}: needs {needed}{failed}")
    text = f"fits on {where}: {page.size(p.headroom_bytes or 0)} to spare"
    if p.growth and p.growth.num_steps_that_fit is not None:
        steps = f"about {page.count(p.growth.num_steps_that_fit, 'step')}"
        return page.unsure(f"✓ {text} at first, but memory grows and is full after {steps}")
    if p.num_alloc_retries:
        retries = f"{page.count(p.num_alloc_retries, 'time')} (slower)"
        return page.unsure(f"✓ {text}, but the allocator has to empty its cache {retries}")
    return page.good(text)


def _step_time(p: Prediction) -> str:
    if p.step is None:
        return f"step time: not predicted ({p.step_seconds_reason})"
    tokens = page.given(", {:,.0f} tokens/s", p.tokens_per_second)
    within = page.given(" ({})", page.between(p.step_seconds_low, p.step_seconds_high))
    # what kernels of others compute is not counted
    share = f", {page.share(p.step.achieved_fraction, 0)} of the GPU's peak rate"
    peak = share if p.step.flops else ""
    bound = BOUND_BY.get(p.step.bound_by, "")
    is_of_host = p.step.bound_by is BoundBy.LAUNCH
    # compiled code launches fewer kernels, and CUDA graphs launch them all at once
    faster = "torch.compile" if p.compilation is None else 'CUDA graphs (mode="reduce-overhead")'
    has_graphs = p.breakdown_bytes.get("private_pools", 0) > 0
    host = f": a larger batch{'' if has_graphs else f' or {faster}'} would help" * is_of_host
    host += page.given("; the host's time is that of {}", p.step.host) if is_of_host else ""
    return f"one step: {page.duration(p.step.seconds)}{within}{tokens}{peak}; {bound}{host}"


def _attention(p: Prediction) -> list[str]:
    if not p.attention_order or not p.ranks:
        return []
    used = " and ".join(p.attention_kernels)
    return [
        f"scaled_dot_product_attention uses {used}; kernels are tried in the order "
        f"{', '.join(p.attention_order)} (--attention-order changes it)"
    ]


def _totals(p: Prediction, measured: Sequence[Measurement]) -> page.Table:
    columns = ["predicted", "first step", "peak"]
    size = page.size
    rows = [
        ["allocated (tensors)", size(p.first_step_allocated_bytes), size(p.peak_allocated_bytes)],
        [
            "reserved (by the allocator)",
            size(p.first_step_reserved_bytes),
            size(p.peak_reserved_bytes),
        ],
        ["whole process (nvidia-smi)", "", size(p.process_bytes) or "unknown without --gpu"],
        ["of it for NCCL", "", size(p.communicators_bytes or None)],
        ["allocator retries", "", str(p.num_alloc_retries)],
        ["parameters", "", page.amount(p.num_parameters)],
        ["of them trained", "", _trained(p)],
        ["step time", "", page.duration(p.step_seconds)],
    ]
    for m in measured:
        columns += [f"peak, measured on {m.gpu or m.device}", "predicted less measured"]
        for row, cells in zip(rows, _measured_cells(p, m), strict=True):
            row += cells
    steps = "".join(f"; {page.count(m.steps_done, 'measured step')}" for m in measured)
    return page.Table(
        title="Memory and time",
        columns=columns,
        left=("predicted",),
        rows=[row for row in rows if any(row[1:])],
        origin="predicted, and measured where a column says so" if measured else page.PREDICTED,
        samples=f"{ONE_RUN} of a few steps{steps}",
    )


def _trained(found: Prediction | Measurement) -> str:
    """The number of trained parameters, where it is not all of them."""
    trained = found.num_trainable_parameters
    if trained is None or trained == found.num_parameters:
        return ""
    return page.amount(trained) or "0"


def _phases(p: Prediction) -> page.Table | None:
    """The table of phases. None for a function, which has only its build and its steps, and no
    notes."""
    names = {phase.name for phase in p.phases}
    if names <= {PhaseName.BUILD, PhaseName.TRAIN} and not p.notes:
        return None
    return phases_table(p.phases, page.PREDICTED, ONE_RUN)


def _ranks(p: Prediction) -> page.Table | None:
    if not p.ranks:
        return None
    return page.Table(
        title=f"Ranks (of {p.world_size} GPUs)",
        columns=["ranks", "allocated", "reserved", "fits", "step time"],
        left=("ranks",),
        rows=[
            [
                ", ".join(map(str, (rank.rank, *rank.alike))),
                page.size(rank.peak_allocated_bytes),
                page.size(rank.peak_reserved_bytes),
                "yes" if rank.fits else "no",
                page.duration(rank.step_seconds),
            ]
            for rank in p.ranks
        ],
        origin=page.PREDICTED,
        samples=f"{ONE_RUN} of each rank that is named; the others were not simulated",
    )


def _rank_bars(p: Prediction) -> list[RankBar]:
    """A bar for every rank, also for those that are alike: each GPU has its own memory."""
    return sorted(
        (rank, one.peak_allocated_bytes, one.peak_reserved_bytes)
        for one in p.ranks
        for rank in (one.rank, *one.alike)
    )


def _communication(p: Prediction) -> page.Table | None:
    between = p.step.communication if p.step else None
    if between is None:
        return None
    return page.table_of(
        between.collectives,
        {
            "collective": "operation",
            "GPUs": "num_gpus",
            "of a machine": "num_gpus_in_machine",
            "count": "count",
            "sent": lambda one: page.size(round(one.sent_bytes)),
            "time": lambda one: page.duration(one.seconds),
        },
        left=("collective",),
        title=f"Communication: it makes the step {page.duration(between.exposed_seconds)} longer "
        f"(efficiency {page.share(between.efficiency)})",
        origin=f"predicted from data sheets: {between.link} in a machine, {between.network} "
        "between machines",
        samples=ONE_RUN,
    )


def _measured_cells(p: Prediction, m: Measurement) -> list[list[str]]:
    def cells(shown: str, predicted: float | None, measured: float | None) -> list[str]:
        off = percent_off(predicted, measured)
        return [shown, "exact" if off == 0 else page.percent(off, 3)]

    sizes = ("peak_allocated_bytes", "peak_reserved_bytes", "process_bytes")
    seconds = m.times.median_seconds if m.times else None
    return [
        *(cells(page.written(name, m), getattr(p, name), getattr(m, name)) for name in sizes),
        ["", ""],
        [page.number(m.num_alloc_retries), ""],
        [page.amount(m.num_parameters), ""],
        [_trained(m), ""],
        cells(page.duration(seconds), p.step_seconds, seconds),
    ]


def _through_step(
    p: Prediction, measured: Sequence[Measurement], overlay: Sequence[page.Layer]
) -> page.Chart | None:
    if p.step_memory is None:
        return None
    peaks = [
        page.Layer(
            "across",
            f"peak reserved (measured on {m.gpu or m.device})",
            [[m.peak_reserved_bytes]],
            "measured",
            dashed=True,
        )
        for m in measured
        if m.peak_reserved_bytes is not None
    ]
    return step_chart(
        p.step_memory,
        page.PREDICTED,
        p.capacity_bytes,
        p.peak_reserved_bytes,
        overlay or peaks,
        bands_of(p),
        p.failure,
    )


def _breakdown(p: Prediction) -> page.Table:
    total = max(p.peak_reserved_bytes, 1)
    found = {name: num_bytes for name, num_bytes in p.breakdown_bytes.items() if num_bytes}
    return page.Table(
        title=f"What the memory is at the peak ({p.peak_phase})",
        columns=("category", "memory", "share"),
        left=("category",),
        rows=[[words(name), page.size(b), page.share(b / total)] for name, b in found.items()],
        bars=[(num_bytes / total, name) for name, num_bytes in found.items()],
        origin=page.PREDICTED,
        samples=ONE_RUN,
    )


def largest_table(tensors: Sequence[LargeTensor], title: str) -> page.Table:
    return page.table_of(
        tensors,
        {
            "size": "num_bytes",
            "what": what_of,
            "shape": shape_of,
            "made by": operator_of,
            "where": lambda t: f"{t.module} {t.source}".strip(),
        },
        left=("what", "shape", "made by", "where"),
        title=title,
        origin=page.PREDICTED,
        samples=ONE_RUN,
    )
