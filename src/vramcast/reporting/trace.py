"""Memory traces as sections: one trace, one over a prediction, and where two differ."""

from collections.abc import Sequence

from vramcast.allocator.compiled import rounded_bytes
from vramcast.forecast.step_memory import step_memory
from vramcast.records.prediction import StepMemory
from vramcast.records.trace_diff import Difference, OpDifference, ShownAllocation, TraceDiff
from vramcast.reporting import sections as page
from vramcast.reporting.step_chart import step_chart
from vramcast.tracing.trace import Trace

MOST_OPS = 12
MEANING = {
    "bytes": "another size",
    "name": "another operator, same size",
    "only_a": "only in A",
    "only_b": "only in B",
    "alive": "freed earlier on one side",
    "step": "step begins elsewhere",
}
FACTS = ("category", "name", "node", "module", "source")
BOTH = "every allocation of both traces"


def of_trace(trace: Trace) -> list[page.Section]:
    """The sections, for the step in which most is allocated."""
    memory = memory_of(trace)
    if memory is None:
        verdict = page.unsure("The trace has no allocation.")
        return [page.Section(title=trace.workload, verdict=verdict)]
    table = page.facts(
        "The trace",
        {
            "GPU": trace.gpu or "",
            "torch": trace.torch_version,
            "steps": page.number(len(trace.steps)),
            "allocations": page.number(len(trace.allocations)),
            "most allocated": page.size(memory.points[memory.peak_point][1]),
            "in": memory.phase,
        },
        origin=trace.source,
        samples="every allocation of one run",
        notes=[
            "allocated is the sum of the tensors, each rounded up to 512 bytes; "
            "the allocator may count a little more for blocks it did not split"
        ],
    )
    title = f"{trace.workload}: {trace.source} trace"
    chart = step_chart(memory, trace.source)
    return [page.Section(title=title, knobs=trace.knobs, parts=[chart, table])]


def memory_of(trace: Trace) -> StepMemory | None:
    if not trace.allocations:
        return None
    return step_memory(
        trace.events,
        rounded_bytes(trace.sizes),
        trace.allocations.labels("category", where_empty="tensors"),
        lambda number: trace.allocations[number - 1].as_tensor(),
    )


def overlay_of(traces: Sequence[Trace]) -> list[page.Layer]:
    memories = filter(None, map(memory_of, traces))
    lines = [[point[:2] for point in memory.points] for memory in memories]
    name = "allocated (measured)"
    return [page.Layer("step", name, line, "measured", dashed=True) for line in lines]


def of_diff(found: TraceDiff, a: str, b: str) -> list[page.Section]:
    verdict = page.good("the same: every allocation, and what is alive at each")
    sections = []
    if found.first is not None:
        total = page.count(sum(found.num_differences.values()), "difference")
        numbers = found.num_differences.items()
        kinds = ", ".join(f"{number} {MEANING[kind]}" for kind, number in numbers if number)
        verdict = page.bad(f"{total}: {kinds}")
        sections.append(_place("First difference", found.first))
    if found.first_in_memory and found.first_in_memory != found.first:
        sections.append(_place("First difference that is more than a name", found.first_in_memory))
    if found.ops:
        sections.append(page.Section(title="By operator", parts=[_ops(found.ops)]))
    steps = page.count(found.num_steps_compared, "step")
    note = f"only the build and the first {steps} are compared"
    summary = page.Section(
        title=f"{a} and {b}",
        verdict=verdict,
        parts=[
            page.limit("--fail-above", "B's peak", found.max_bytes, found.over_max_bytes),
            _sides(found, a, b),
        ],
        notes=[note] if found.a.num_steps != found.b.num_steps else [],
    )
    return [summary, *sections]


def _sides(found: TraceDiff, a: str, b: str) -> page.Table:
    return page.Table(
        title="Traces",
        columns=("", "trace", "steps", "allocations", "peak asked for", "torch"),
        left=("", "trace", "torch"),
        rows=[
            [
                name,
                f"{file} ({side.source}, {side.workload})",
                str(side.num_steps),
                f"{side.num_allocations:,}",
                page.size(side.peak_allocated_bytes),
                side.torch_version,
            ]
            for name, side, file in (("A", found.a, a), ("B", found.b, b))
        ],
        origin=f"A {found.a.source}, B {found.b.source}",
        samples=BOTH,
    )


def _place(title: str, place: Difference) -> page.Section:
    where = f"step {place.step}" if place.step else "the build"
    kinds = ", ".join(MEANING[kind] for kind in place.kinds)
    remark = page.Remark(f"{title}, in {where}: {kinds}", below=_explained(place))
    rows = [["", *_cells(a), *_cells(b)] for a, b in place.lines]
    tones = [page.Tone.PLAIN] * len(rows)
    rows[place.position][0], tones[place.position] = ">", page.Tone.BAD
    each = ("operator", "bytes", "allocated")
    table = page.Table(
        columns=("", "A", *each, "B", *each),
        left=("", "A", "operator", "B"),
        rows=rows,
        tones=tones,
        samples="some allocations before and after it",
    )
    return page.Section(title=title, parts=[remark, table])


def _explained(place: Difference) -> list[str]:
    lines = [
        f"{side}: {_described(line)}"
        for side, line in zip("AB", place.lines[place.position], strict=True)
        if line is not None and line.facts
    ]
    for side, alive, number in (
        ("A", place.alive_only_a, place.num_alive_only_a),
        ("B", place.alive_only_b, place.num_alive_only_b),
    ):
        more = number - len(alive)
        texts = [*map(_described, alive), *[f"{more} more"] * (more > 0)]
        lines += [f"alive in {side} only: {text}" for text in texts]
    return lines


def _cells(line: ShownAllocation | None) -> Sequence[str]:
    if line is None:
        return "-", "", "", ""
    return (
        page.given("#{}", line.number or None),
        line.op.removeprefix("aten::") or "?",
        f"{line.num_bytes:,}",
        page.size(line.allocated_bytes),
    )


def _described(line: ShownAllocation) -> str:
    facts = " ".join(line.facts[fact] for fact in FACTS if fact in line.facts)
    return f"#{line.number} {line.op or '?'} {page.size(line.num_bytes)}  {facts}".rstrip()


def _ops(ops: Sequence[OpDifference]) -> page.Table:
    return page.table_of(
        ops,
        {
            "operator": lambda op: op.op or "?",
            "count A": "count_a",
            "count B": "count_b",
            "bytes A": lambda op: page.size(op.bytes_a),
            "bytes B": lambda op: page.size(op.bytes_b),
            "change": lambda op: page.size(op.bytes_b - op.bytes_a),
        },
        left=("operator",),
        title="By operator, largest difference first",
        most_rows=MOST_OPS,
        samples=BOTH,
    )
