"""`vramcast.server`: a process that has imported torch, kept for the next predictions."""

import math
import time
from enum import StrEnum
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.predicting.predict import compile_device
from vramcast.processes import kept
from vramcast.processes.progress import Report, ignore
from vramcast.simulate.runner import ENVIRONMENT, SHARED

DEFAULT_MINUTES = 30.0
MAX_MINUTES = 7 * 24 * 60


class Action(StrEnum):
    START = "start"
    STOP = "stop"
    STATUS = "status"


def server(
    action: str, *, minutes: float = DEFAULT_MINUTES, progress: Report = ignore
) -> list[dict[str, Any]]:
    """Start, stop or look at what answers predictions without importing torch each time.

    `server("start", minutes=60)`. It ends after so many minutes without a question. Returns
    this user's servers: those that run, or were stopped.
    """
    if action not in list(Action):
        raise UsageError(f"There is no `server {str(action)[:40]}`.", "Give start, stop or status.")
    if action == Action.START:
        _start(minutes, progress)
    found = [one for path in kept.servers() if (one := _status(path)) is not None]
    if action == Action.STOP:
        for path in kept.servers():
            kept.stop(path)
    return found


def _status(path: Any) -> dict[str, Any] | None:
    told = kept.status(path)
    if told is None:
        return None
    serves_here = path == kept.socket_path(SHARED, ENVIRONMENT)
    return {**told, "serves_this_environment": serves_here, "is_ready": bool(told)}


def _start(minutes: float, progress: Report) -> None:
    if type(minutes) not in (int, float) or not 0 < minutes <= MAX_MINUTES or math.isnan(minutes):
        raise UsageError(
            f"--minutes is more than 0 and at most {MAX_MINUTES}, not {minutes}.",
            "For example --minutes 30.",
        )
    compile_device(progress)  # the server needs it
    link = kept.connect_or_start(SHARED, ENVIRONMENT, minutes * 60)
    if link is None:
        raise EnvironmentProblem(
            f"The server cannot listen in {kept.folder()}.",
            "It must be yours and closed to others (mode 700), its path at most 70 characters: "
            "remove what is there, or set XDG_RUNTIME_DIR.",
        )
    with link:
        # The server answers when it has imported torch, or ends if it cannot.
        link.settimeout(kept.STOP_SECONDS)
        try:
            link.send(kept.STATUS)
            is_there = bool(link.recv(kept.MAX_STATUS_BYTES))
        except OSError:
            is_there = False
    if not is_there:
        raise EnvironmentProblem(
            "The server did not start.", "`vramcast env` says whether torch can be imported."
        )


def describe(one: dict[str, Any], *, has_ended: bool = False) -> str:
    """A line about the server for people."""
    if not one["is_ready"]:
        return "A server that still imports torch" + (" was stopped." if has_ended else ".")
    age = (time.time() - one["started"]) / 60
    text = (
        f"process {one['pid']}, torch {one['torch_version']}, {one['resident_bytes'] / 2**20:.0f} "
        f"MiB, {one['num_questions']} questions in {age:.0f} min; ends after "
        f"{one['idle_minutes']:g} min without one"
    )
    if has_ended:
        return f"Stopped: {text}."
    if not one["serves_this_environment"]:
        text += "; it was started in another environment and does not serve commands of this one"
    return f"Runs: {text}."
