"""How events of a GPU's memory are compared: bytes allocated and, negative, freed."""

from __future__ import annotations


def ordered(events: list[int]) -> list[int]:
    """Without the frees after the last allocation: two threads release what they hold.

    Between two allocations frees commute: what is left does not depend on their order.
    """
    last = max((i for i, event in enumerate(events) if event > 0), default=-1)
    given: list[int] = []
    frees: list[int] = []
    for event in events[: last + 1]:
        if event > 0:
            given += [*sorted(frees), event]
            frees = []
        else:
            frees.append(event)
    return given


def peak(events: list[int]) -> int:
    current = highest = 0
    for event in events:
        current += event
        highest = max(highest, current)
    return highest
