"""Which knobs a workload has: its function is loaded beside the simulated GPU, and not called."""

from typing import Any

from vramcast.simulate.runner import simulate
from vramcast.workload.reference import parse_reference

SECONDS = 120.0


def knobs_of_workload(name: str) -> list[dict[str, Any]]:
    """Each knob with its default and the values that it takes."""
    request = {
        "workload": parse_reference(name).portable,
        "gpu": None,
        "memory_bytes": None,
        "allocator": "",
        "describe": True,
    }
    found: list[dict[str, Any]] = simulate(request, SECONDS)["knobs"]
    return found
