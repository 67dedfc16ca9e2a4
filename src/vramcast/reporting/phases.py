"""The table of a program's phases, predicted or measured."""

from collections.abc import Sequence

from vramcast.records.phases import Phase, PhaseName
from vramcast.reporting import sections as page

UNITS = {
    PhaseName.TRAIN: "step",
    PhaseName.EVALUATE: "forward pass",
    PhaseName.SAVE: "save",
}


def phases_table(phases: Sequence[Phase], origin: str, samples: str) -> page.Table:
    highest = max(phase.peak_reserved_bytes for phase in phases)
    # reserved memory stays reserved, so the first phase with the highest peak decides
    decides = next(phase for phase in phases if phase.peak_reserved_bytes == highest)
    return page.Table(
        title="Phases",
        columns=["phase", "seen", "allocated", "reserved", ""],
        left=("phase", ""),
        rows=[
            [
                phase.name,
                page.count(phase.num_steps, UNITS[phase.name]) if phase.name in UNITS else "",
                page.size(phase.peak_allocated_bytes),
                page.size(phase.peak_reserved_bytes),
                "decides" if phase is decides else "",
            ]
            for phase in phases
        ],
        origin=origin,
        samples=samples,
    )
