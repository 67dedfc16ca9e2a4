"""The task that says which knobs a workload has: its function is loaded in another process, and not
called."""

from typing import Any

from vramcast.errors import WorkloadError
from vramcast.processes.ask import TaskFailed, ask
from vramcast.workload.knobs import described
from vramcast.workload.loading import load_function
from vramcast.workload.reference import parse_reference

SECONDS = 120.0


def knobs_of_workload(name: str) -> list[dict[str, Any]]:
    """Each with its default and what it takes."""
    request = {"workload": parse_reference(name).portable}
    try:
        answer = ask("vramcast.workload.description:answer", request, timeout_seconds=SECONDS)
    except TaskFailed as failure:
        raise WorkloadError(f"{name} could not be loaded.\n{failure.message}") from None
    found: list[dict[str, Any]] = answer["knobs"]
    return found


def answer(request: dict[str, Any], _: object = None) -> dict[str, Any]:
    return {"knobs": described(load_function(parse_reference(request["workload"])))}
