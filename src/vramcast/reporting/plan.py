"""A plan as sections: an overview, and the stages on every GPU."""

from itertools import cycle

from vramcast.records.plan import GpuPlan, Plan
from vramcast.reporting import sections as page
from vramcast.reporting.laws import calculator_of
from vramcast.reporting.prediction import largest_table, where_of
from vramcast.reporting.prediction_table import COST, hours

MOST_IN_A_SENTENCE = 8
MOST_CAPACITIES = 4


def of_plan(plan: Plan) -> list[page.Section]:
    overview = page.Section(
        kind="Plan",
        title=plan.workload,
        knobs=plan.knobs,
        verdict=_ranking(plan),
        text=_choices(plan),
        parts=[_gpus(plan), _overview(plan), _calculator(plan)],
        notes=_notes(plan),
        limits=_limits(plan),
        made=page.predicted_with(plan),
    )
    return [
        overview,
        *(
            page.Section(
                kind="Plan",
                title=f"{plan.workload} on {_name(gpu)}",
                verdict=_verdict(plan, gpu),
                parts=[_stages(plan, gpu), _reasons(plan, gpu), _in_the_way(gpu)],
            )
            for gpu in plan.gpus
        ),
    ]


def _limits(plan: Plan) -> list[str]:
    """Each limit once, with the GPUs that it applies to."""
    found: dict[str, list[str]] = {}
    for gpu in plan.gpus:
        for limit in gpu.limits:
            found.setdefault(limit, []).append(_name(gpu))
    if len(plan.gpus) == 1:
        return list(found)
    return [f"on {', '.join(names)}: {limit}" for limit, names in found.items()]


def _name(gpu: GpuPlan) -> str:
    count = f"{gpu.world_size} x " if gpu.world_size > 1 else ""
    return f"{count}{gpu.gpu or 'the given memory'}{page.given(', {}', gpu.strategy)}"


def _ranking(plan: Plan) -> page.Remark:
    """The verdict over all GPUs. Empty for one GPU, whose own section says everything."""
    if len(plan.gpus) < 2:
        return page.Remark("")
    complete = [gpu for gpu in plan.gpus if gpu.complete]
    timed = [(gpu.total_hours, _name(gpu)) for gpu in complete if gpu.total_hours is not None]
    order = ", ".join(f"{name} {hours:,.1f} hours" for hours, name in sorted(timed))
    what = "all lengths fit" if plan.has_lengths else "it fits"
    kind = "plans" if _is_spread(plan) else "GPUs"
    fits = f"{what} on {len(complete)} of {len(plan.gpus)} {kind}"
    fits += page.given(": {}", order if len(complete) < MOST_IN_A_SENTENCE else "")
    if not complete:
        return page.bad(fits)
    if plan.deadline_hours is not None and not plan.in_time:
        return page.bad(f"{fits}; none is done in {plan.deadline_hours:,.1f} hours")
    is_all = len(complete) == len(plan.gpus)
    return page.good(fits) if is_all else page.unsure(f"✓ {fits}")


def _is_spread(plan: Plan) -> bool:
    return any(gpu.world_size > 1 for gpu in plan.gpus)


def _choices(plan: Plan) -> list[str]:
    """Lines on the fewest GPUs on which it fits, and on the cheapest plan that is done in time."""
    if not _is_spread(plan) or plan.fewest is None:
        return []
    lines = [f"the fewest GPUs on which it fits: {_name(plan.fewest)}"]
    best = plan.cheapest
    if best is None:
        return lines
    limit = plan.deadline_hours
    within = "" if limit is None else f" that is done in {page.number(limit, ',.1f')} hours"
    spent = page.number(best.cost, ",.2f") if plan.prices else f"{hours(best.gpu_hours)} GPU-hours"
    return [
        *lines,
        f"the cheapest{within}: {_name(best)}, {hours(best.total_hours)} hours, {spent}",
    ]


def _gpus(plan: Plan) -> page.Table | None:
    """A table of all GPUs side by side."""
    if len(plan.gpus) < 2:
        return None
    rate = "tok/s" if plan.has_lengths else "smp/s"
    return page.table_of(
        plan.gpus,
        {
            "GPU": _name,
            "fits": lambda gpu: "failed" if gpu.error else "yes" if gpu.complete else "no",
            "batch": lambda gpu: _span([s.batch_size for s in gpu.stages if s.batch_size]),
            "memory": lambda gpu: page.size(
                max((s.peak_reserved_bytes or 0 for s in gpu.stages), default=0) or None
            ),
            rate: lambda gpu: _rate(_mean_rate(gpu)),
            "hours": lambda gpu: hours(gpu.total_hours),
            "90 % within": lambda gpu: (
                f"{hours(gpu.total_hours_low)} to {hours(gpu.total_hours_high)}"
                if gpu.total_hours_low is not None
                else ""
            ),
            "GPU-hours": lambda gpu: hours(gpu.gpu_hours) if _is_spread(plan) else "",
            "efficiency": lambda gpu: page.share(gpu.efficiency),
            "cost": lambda gpu: page.number(gpu.cost, ",.2f"),
        },
        left=("GPU",),
        title="GPUs",
        tones=[page.Tone.PLAIN if gpu.complete else page.Tone.BAD for gpu in plan.gpus],
        origin=page.PREDICTED,
        samples=page.count(len(plan.gpus), "GPU"),
    )


def _span(sizes: list[int]) -> str:
    low, high = min(sizes, default=0), max(sizes, default=0)
    return page.number(high or None) if low == high else f"{low} to {high}"


def _mean_rate(gpu: GpuPlan) -> float | None:
    """Tokens a second over the whole training."""
    if not gpu.total_hours or gpu.total_tokens is None:
        return None
    return gpu.total_tokens / gpu.total_hours / 3600


def _notes(plan: Plan) -> list[str]:
    timed = any(stage.hours_to_budget is not None for gpu in plan.gpus for stage in gpu.stages)
    tokens = page.amount(plan.tokens)
    cost = COST if plan.prices else ""
    if not plan.has_lengths:
        return [
            f"the workload has no knob seq_len: --tokens is {tokens} samples",
            page.given("not predicted: {}", plan.step_seconds_reason),
            cost,
        ]
    return [
        "start is the step at which a length begins",
        f"tokens are those of one step; {plan.split}",
        f"hours are for training all {tokens} tokens at that length" if timed else "",
        page.given("not predicted: {}", plan.step_seconds_reason),
        cost,
    ]


def _overview(plan: Plan) -> page.Chart | None:
    """Charts by sequence length. None for a single length."""
    if len(plan.seq_lens) < 2:
        return None
    x = page.Axis("sequence length", log=len(plan.seq_lens) > 2)

    def view(name: str, field: str, unit: str = "number") -> page.View:
        layers = [
            page.layer_of(kind, _name(gpu), colour, gpu.stages, ("seq_len", field))
            for gpu, colour in zip(plan.gpus, cycle(page.SERIES_COLOURS), strict=False)
            for kind in ("line", "dot")
        ]
        capacities = _capacities(plan) if unit == "bytes" else []
        return page.View(x, page.Axis(name, unit), [*layers, *capacities], name)

    return page.chart(
        "By sequence length",
        f"Predicted, for {page.count(len(plan.gpus), 'GPU')}.",
        view("largest batch", "batch_size"),
        view("tokens a second", "tokens_per_second"),
        view("memory", "peak_reserved_bytes", "bytes"),
    )


def _capacities(plan: Plan) -> list[page.Layer]:
    """Lines of the GPUs' capacities; none where there are too many to tell apart."""
    if len(plan.gpus) > MOST_CAPACITIES:
        return []
    return [
        page.Layer("across", f"capacity of {_name(gpu)}", [[gpu.capacity_bytes]], colour)
        for gpu, colour in zip(plan.gpus, page.SERIES_COLOURS, strict=False)
    ]


def _calculator(plan: Plan) -> page.Calculator | None:
    """Sliders for the law of the first GPU that has one: the memory of a step differs little
    between GPUs."""
    own = {_name(gpu): gpu.capacity_bytes for gpu in plan.gpus}
    for gpu in plan.gpus:
        if gpu.law is not None:
            what = f"in one pass (kernels of {_name(gpu)}, predicted)"
            starts = [
                {"batch_size": stage.batch_size, "seq_len": stage.seq_len}
                for stage in gpu.stages
                if stage.batch_size is not None
            ]
            title = f"Memory for a batch and a length, {what}"
            return calculator_of(gpu.law, title, own, next(iter(starts), {}))
    return None


def _hours(gpu: GpuPlan) -> str:
    low, high = gpu.total_hours_low, gpu.total_hours_high
    within = "" if low is None or high is None else f" ({low:,.1f} to {high:,.1f})"
    return f"{gpu.total_hours:,.1f} hours{within}"


def _verdict(plan: Plan, gpu: GpuPlan) -> page.Remark:
    if gpu.error:
        return page.bad(f"{_name(gpu)}: {' '.join(gpu.error.split())}")
    spared = page.given(", {:g} % of it left free", 100 * plan.safety or None)
    where = where_of(gpu.gpu, gpu.capacity_bytes, spared)
    missing = [str(stage.seq_len) for stage in gpu.stages if not stage.fits]
    if missing:
        at = f" at length {', '.join(missing)}" if plan.has_lengths else ""
        return page.bad(f"{where}: not even one sample fits{at}")
    time = "time not predicted" if gpu.total_hours is None else _hours(gpu)
    steps, tokens = page.number(gpu.total_steps), page.amount(gpu.total_tokens or 0)
    what = "tokens" if plan.has_lengths else "samples"
    return page.good(f"{where}: {steps} steps for {tokens} {what}, {time}")


def _stages(plan: Plan, gpu: GpuPlan) -> page.Table:
    """The table of stages. Headings are short, so that all columns fit into 80 characters."""
    return page.table_of(
        gpu.stages,
        {
            **({"length": "seq_len"} if plan.has_lengths else {}),
            "batch": lambda s: page.number(s.batch_size, "d") or "none",
            "accum": "accumulation_steps",
            "tokens" if plan.has_lengths else "samples": "tokens_per_step",
            "memory": "peak_reserved_bytes",
            "share": lambda s: page.share(s.share_of_memory, 0),
            "bound by": lambda s: s.binds or ("" if s.fits else "memory"),
            "tok/s": lambda s: _rate(s.tokens_per_second) if plan.has_lengths else "",
            "smp/s": lambda s: _rate(s.samples_per_second),
            "hours": lambda s: _rate(s.hours_to_budget),
            "start": "start_step",
        },
        title="Stages",
        tones=[page.Tone.PLAIN if stage.fits else page.Tone.BAD for stage in gpu.stages],
        origin=page.PREDICTED,
        samples=_samples(gpu),
    )


def _rate(value: float | None) -> str:
    """The number with three digits, or more if it is larger."""
    if value is None:
        return ""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _samples(gpu: GpuPlan) -> str:
    sizes = f", {page.count(len(gpu.law.rows), 'size')} simulated" if gpu.law is not None else ""
    return f"{page.count(len(gpu.stages), 'length')}{sizes}"


def _reasons(plan: Plan, gpu: GpuPlan) -> page.Table:
    return page.table_of(
        gpu.stages,
        {**({"length": "seq_len"} if plan.has_lengths else {}), "why": "why"},
        left=("why",),
        title="Why",
        origin=page.PREDICTED,
        samples=_samples(gpu),
    )


def _in_the_way(gpu: GpuPlan) -> page.Table | None:
    """The largest tensors at the first length that does not fit. At longer ones they are the
    same."""
    for stage in gpu.stages:
        if not stage.fits:
            missing = f"where {page.size(stage.missing_bytes or 0)} are missing"
            title = f"Largest in memory at length {stage.seq_len}, {missing}"
            return largest_table(stage.largest_tensors, title)
    return None
