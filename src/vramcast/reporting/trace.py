"""The memory trace of a run as sections, and as a line over a prediction."""

from collections.abc import Sequence

from vramcast.allocator.settings import AllocatorSettings
from vramcast.forecast.step_memory import step_memory
from vramcast.records.prediction import StepMemory
from vramcast.reporting import sections as page
from vramcast.reporting.step_chart import step_chart
from vramcast.tracing.trace import Trace


def of_trace(trace: Trace) -> list[page.Section]:
    """Of the step with the most allocated. A trace does not say what is reserved."""
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
        [AllocatorSettings().rounded(size) for size in trace.sizes],
        [a.category or "tensors" for a in trace.allocations],
        lambda number: trace.allocations[number - 1].as_tensor(),
    )


def overlay_of(traces: Sequence[Trace]) -> list[page.Layer]:
    """What was measured, to be laid over a prediction."""
    memories = filter(None, map(memory_of, traces))
    lines = [[point[:2] for point in memory.points] for memory in memories]
    name = "allocated (measured)"
    return [page.Layer("step", name, line, "measured", dashed=True) for line in lines]
