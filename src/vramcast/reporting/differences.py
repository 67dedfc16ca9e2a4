"""Two memory traces side by side as sections: where they part, and by how much in all."""

from __future__ import annotations

from collections.abc import Sequence

from vramcast.records.trace_diff import Difference, OpDifference, ShownAllocation, TraceDiff
from vramcast.reporting.sections import Column, Remark, Section, Table, Tone, count, size

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


def of_diff(found: TraceDiff, a: str, b: str) -> list[Section]:
    """`a` and `b` are the files."""
    verdict, tone = "✓ the same: every allocation, and what is alive at each", Tone.GOOD
    if found.first is not None:
        total = count(sum(found.num_differences.values()), "difference")
        numbers = found.num_differences.items()
        kinds = ", ".join(f"{number} {MEANING[kind]}" for kind, number in numbers if number)
        verdict, tone = f"✗ {total}: {kinds}", Tone.BAD
    notes = []
    if found.a.num_steps != found.b.num_steps:
        steps = count(found.num_steps_compared, "step")
        notes = [f"compared are the build and the first {steps}"]
    summary = Section(
        title=f"{a} and {b}",
        verdict=verdict,
        tone=tone,
        tables=[_sides(found, a, b)],
        notes=notes,
    )
    places = []
    if found.first is not None:
        places.append(_place("First difference", found.first))
    if found.first_in_memory not in (None, found.first):
        assert found.first_in_memory is not None
        places.append(_place("First difference that is more than a name", found.first_in_memory))
    ops = [Section(title="By operator", tables=[_ops(found.ops)])] if found.ops else []
    return [summary, *places, *ops]


def _sides(found: TraceDiff, a: str, b: str) -> Table:
    names = ("steps", "allocations", "peak asked for")
    return Table(
        title="Traces",
        columns=[
            Column("", left=True),
            Column("trace", left=True),
            *map(Column, names),
            Column("torch", left=True),
        ],
        rows=[
            [
                name,
                f"{file} ({side.source}, {side.workload})",
                str(side.num_steps),
                f"{side.num_allocations:,}",
                size(side.peak_allocated_bytes),
                side.torch_version,
            ]
            for name, side, file in (("A", found.a, a), ("B", found.b, b))
        ],
        origin=f"A {found.a.source}, B {found.b.source}",
        samples=BOTH,
    )


def _place(title: str, place: Difference) -> Section:
    where = f"step {place.step}" if place.step else "the build"
    kinds = ", ".join(MEANING[kind] for kind in place.kinds)
    text = f"{title}, in {where}: {kinds}"
    left = ("", "A", "operator", "B")
    names = ("", "A", "operator", "bytes", "allocated", "B", "operator", "bytes", "allocated")
    here = [index == place.position for index in range(len(place.lines))]
    return Section(
        title=title,
        remarks=[Remark(text=text, below=_explained(place))],
        tables=[
            Table(
                columns=[Column(name, left=name in left) for name in names],
                rows=[
                    [">" if is_here else "", *_cells(one), *_cells(other)]
                    for is_here, (one, other) in zip(here, place.lines, strict=True)
                ],
                tones=[Tone.BAD if is_here else Tone.PLAIN for is_here in here],
                samples="some allocations before and after it",
            )
        ],
    )


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
        lines += [f"alive in {side} only: {_described(line)}" for line in alive]
        if number > len(alive):
            lines.append(f"alive in {side} only: {number - len(alive)} more")
    return lines


def _cells(line: ShownAllocation | None) -> Sequence[str]:
    if line is None:
        return "-", "", "", ""
    number = f"#{line.number}" if line.number else ""
    op = line.op.removeprefix("aten::") or "?"
    return number, op, f"{line.num_bytes:,}", size(line.allocated_bytes)


def _described(line: ShownAllocation) -> str:
    facts = " ".join(line.facts[fact] for fact in FACTS if fact in line.facts)
    return f"#{line.number} {line.op or '?'} {size(line.num_bytes)}  {facts}".rstrip()


def _ops(ops: Sequence[OpDifference]) -> Table:
    names = ("count A", "count B", "bytes A", "bytes B", "B less A")
    return Table(
        title="By operator, largest difference first",
        columns=[Column("operator", left=True), *map(Column, names)],
        rows=[
            [
                op.op or "?",
                str(op.count_a),
                str(op.count_b),
                size(op.bytes_a),
                size(op.bytes_b),
                size(op.bytes_b - op.bytes_a),
            ]
            for op in ops
        ],
        most_rows=MOST_OPS,
        samples=BOTH,
    )
