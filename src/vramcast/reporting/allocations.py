"""Every large allocation of a step as its own piece of a chart, with what is known about it."""

from collections.abc import Sequence

from vramcast.records.prediction import CATEGORIES, PhaseBand, StepBand, StepMemory
from vramcast.records.step_memory import StepAllocation
from vramcast.reporting import sections as page
from vramcast.reporting.tensors import colour_of, described, operator_of, shape_of, words

Bands = Sequence[PhaseBand | StepBand]


def piece_layers(memory: StepMemory, bands: Bands) -> list[page.Layer]:
    """For each category its large allocations one by one, then the rest. Empty for older
    records."""
    by_category: dict[str, list[int]] = {}
    for rank, one in enumerate(memory.allocations):
        by_category.setdefault(memory.tensors[one.tensor].category, []).append(rank)
    names = sorted(by_category, key=[*CATEGORIES, *by_category].index)
    layers = [_layer(memory, name, by_category[name], bands) for name in names]
    return [*layers, *_rest(memory)] if layers else []


def _rest(memory: StepMemory) -> list[page.Layer]:
    """For each category, its smaller allocations together."""
    events = memory.rest.get("event", [])
    names = sorted(memory.rest.keys() - {"event"}, key=[*CATEGORIES, *memory.rest].index)
    return [
        page.Layer(
            "rest",
            words(name),
            [list(point) for point in zip(events, memory.rest[name], strict=True)],
            colour_of(name),
        )
        for name in names
    ]


def _layer(memory: StepMemory, category: str, ranks: Sequence[int], bands: Bands) -> page.Layer:
    ranked = [(rank, memory.allocations[rank]) for rank in ranks]
    return page.Layer(
        "piece",
        words(category),
        [[*_ends(memory, one), one.num_bytes, rank, _label(memory, one)] for rank, one in ranked],
        colour_of(category),
        [described(memory.tensors[one.tensor]) for _, one in ranked],
        more=[_facts(memory, one, bands) for _, one in ranked],
    )


def _ends(memory: StepMemory, one: StepAllocation) -> tuple[int, int]:
    """When it begins and ends, as events of the step."""
    end = memory.num_events
    freed = end if one.freed_event is None else one.freed_event - memory.first_event
    return max(0, one.made_event - memory.first_event), max(0, min(end, freed))


def _label(memory: StepMemory, one: StepAllocation) -> str:
    tensor = memory.tensors[one.tensor]
    return tensor.name or " ".join(filter(None, (tensor.module, operator_of(tensor))))


def _facts(memory: StepMemory, one: StepAllocation, bands: Bands) -> dict[str, str]:
    tensor = memory.tensors[one.tensor]
    begin, end = _ends(memory, one)
    freed = "" if one.freed_event is None else _when(memory, one.freed_event, bands)
    facts = {
        "tensor": tensor.name,
        "shape": shape_of(tensor),
        "made by": operator_of(tensor),
        "module": tensor.module,
        "line": tensor.source,
        "made": _when(memory, one.made_event, bands),
        "freed": freed or "not in this run",
        "there for": f"{page.share((end - begin) / max(1, memory.num_events), 0)} of the step",
    }
    return {name: text for name, text in facts.items() if text}


def _when(memory: StepMemory, event: int, bands: Bands) -> str:
    part = next((b.name for b in bands if b.first_event <= event < b.last_event), "")
    number = event - memory.first_event
    if 0 <= number < memory.num_events:
        where = page.given(" ({})", part)
        return f"at event {number:,} of {memory.num_events:,}{where}"
    side = "before" if number < 0 else "after"
    return f"{side} {memory.phase}{page.given(' ({})', part)}"
