"""The memory trace of a run as sections, and as a line over a prediction."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.allocator.settings import AllocatorSettings
from vramcast.forecast.step_memory import step_memory
from vramcast.records.prediction import StepMemory
from vramcast.reporting.sections import Column, Layer, Section, Table, Tone, knobs_of, number, size
from vramcast.reporting.step_chart import step_chart
from vramcast.tracing.trace import Trace

SUM = (
    "allocated is the sum of the tensors, each rounded up to 512 bytes; "
    "the allocator may count a little more for blocks it did not split"
)


def of_trace(trace: Trace) -> list[Section]:
    """Of the step with the most allocated. A trace does not say what is reserved."""
    memory = memory_of(trace)
    if memory is None:
        verdict, tone = "The trace has no allocation.", Tone.UNSURE
        return [Section(title=trace.workload, verdict=verdict, tone=tone)]
    return [
        Section(
            title=f"{trace.workload}: {trace.source} trace",
            subtitle=knobs_of(trace.knobs),
            figures=[step_chart(memory, origin=trace.source)],
            tables=[_table(trace, memory)],
        )
    ]


def memory_of(trace: Trace) -> StepMemory | None:
    if not trace.allocations:
        return None
    block_bytes = [AllocatorSettings().rounded(size) for size in trace.sizes]
    categories = [a.category or "tensors" for a in trace.allocations]
    return step_memory(
        trace.events,
        block_bytes,
        categories,
        lambda number: trace.allocations[number - 1].as_tensor(),
    )


def _table(trace: Trace, memory: StepMemory) -> Table:
    return Table(
        title="The trace",
        columns=[Column("", left=True), Column("", left=True)],
        rows=[
            ["GPU", trace.gpu or ""],
            ["torch", trace.torch_version],
            ["steps", number(len(trace.steps))],
            ["allocations", number(len(trace.allocations))],
            ["most allocated", size(memory.points[memory.peak_point][1])],
            ["in", memory.phase],
        ],
        origin=trace.source,
        samples="every allocation of one run",
        notes=[SUM],
    )


def overlay_of(traces: Sequence[Trace]) -> list[Layer]:
    """What was measured, to be laid over a prediction."""
    memories = [memory for trace in traces if (memory := memory_of(trace)) is not None]
    return [
        Layer(
            kind="step",
            name="allocated (measured)",
            points=[point[:2] for point in memory.points],
            colour="measured",
            dashed=True,
        )
        for memory in memories
    ]
