"""Which changes a workload takes: its function is loaded in a process of its own, and every change is held against its knobs.

Run as `python -m vramcast.tuning.inspection FD PARENT`: one JSON request on stdin, one JSON answer on the descriptor. Nothing is built.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramcast.errors import EnvironmentProblem, VramcastError, WorkloadError
from vramcast.processes.lifetime import child_environment, end_with_the_parent
from vramcast.tuning.entry import Change, Entry
from vramcast.workload import separated

SECONDS = 300.0


@dataclass(frozen=True)
class Offer:
    """What a workload lets `tune` change."""

    baseline: dict[str, Any]  # the knobs in force, defaults included
    changes: dict[str, Change]  # by the entry's name
    refusals: dict[str, str]  # why the others cannot be had


def inspect_workload(
    workload: str,
    entries: Sequence[Entry],
    *,
    device: str,
    knobs: Mapping[str, Any],
    timeout_seconds: float | None = None,
) -> Offer:
    """`timeout_seconds` is what the caller has; more than SECONDS is never taken."""
    questions = {
        entry.name: [dict(change.knobs) for change in entry.changes]
        for entry in entries
        if entry.changes
    }
    request = {
        "workload": workload,
        "device": device,
        **separated(knobs),
        "questions": questions,
    }
    answer = _ask(request, SECONDS if timeout_seconds is None else min(SECONDS, timeout_seconds))
    baseline: dict[str, Any] = answer["baseline"]
    changes: dict[str, Change] = {}
    refusals: dict[str, str] = {}
    for entry in entries:
        found = (
            _size_offer(entry, baseline)
            if entry.size
            else _offer(entry, answer["answers"][entry.name], baseline)
        )
        if isinstance(found, str):
            refusals[entry.name] = found
        else:
            changes[entry.name] = found
    return Offer(baseline, changes, refusals)


def _size_offer(entry: Entry, baseline: Mapping[str, Any]) -> Change | str:
    """Which values are tried is known later."""
    assert entry.size is not None
    if type(baseline.get(entry.size)) is not int:
        return f"the workload has no knob {entry.size}"
    return Change()


def _offer(entry: Entry, answer: Mapping[str, Any], baseline: Mapping[str, Any]) -> Change | str:
    if "refused" in answer:
        return str(answer["refused"])
    other = next(
        (
            name
            for name, values in entry.only_from.items()
            if name in baseline and baseline[name] not in values
        ),
        None,
    )
    if other is not None:
        return f"the baseline has {other}={baseline[other]}: with it this would be something else, not the same made faster"
    return entry.changes[int(answer["taken"])]


def _ask(request: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+", errors="replace") as log, tempfile.TemporaryFile("w+") as out:
        # the answer is a file, not a pipe: the end of a pipe comes only when nobody holds it, and what the workload forks does
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "vramcast.tuning.inspection",
                str(out.fileno()),
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[out.fileno()],
            env=child_environment(),
            text=True,
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(request), timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise WorkloadError(
                f"{request['workload']} could not be imported within {timeout_seconds:.3g} s.",
                "Does its file wait?"
                if timeout_seconds >= SECONDS
                else "Give more time with --budget, for example 20min.",
            ) from None
        finally:  # an interruption too: neither it nor what the workload started is left running
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        text = out.read()
        log.seek(0)
        tail = "\n".join(log.read().strip().splitlines()[-8:])
    if not text:
        raise WorkloadError(
            f"{request['workload']} could not be imported.\n{tail}".rstrip(),
            "Import it in Python first.",
        )
    result: dict[str, Any] = json.loads(text)
    if "error" in result:
        told = result["error"]
        kinds: dict[int, type[VramcastError]] = {2: WorkloadError, 1: EnvironmentProblem}
        raise kinds.get(told["exit_code"], VramcastError)(told["message"], told["advice"])
    return result


# --------------------------------------------------------------------------------------------------------------- in the process of its own
def answer(request: dict[str, Any]) -> dict[str, Any]:
    from vramcast.workload import bind_knobs, load_function, parse_reference, together

    with _on(request["device"]):
        function = load_function(parse_reference(request["workload"]))
    given = together(request)
    bound = bind_knobs(function, given)

    def bind(change: Mapping[str, Any]) -> dict[str, Any]:
        return bind_knobs(function, {**given, **change})

    answers = {
        name: _answer_one(changes, bound, bind) for name, changes in request["questions"].items()
    }
    return {"baseline": {name: _plain(value) for name, value in bound.items()}, "answers": answers}


def _answer_one(
    changes: Sequence[Mapping[str, Any]],
    bound: Mapping[str, Any],
    bind: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """The first change that the workload takes and does not have already, or why there is none."""
    refusals = []
    for index, change in enumerate(changes):
        missing = [name for name in change if name not in bound]
        if missing:
            refusals.append(f"the workload has no knob {missing[0]}")
            continue
        try:
            taken = bind(change)
        except WorkloadError as problem:
            refusals.append(f"the workload does not take it: {problem.message}")
            continue
        if change and all(taken[name] == bound[name] for name in change):
            shown = ", ".join(f"{name}={value}" for name, value in change.items())
            return {"refused": f"the baseline has it already ({shown})"}
        return {"taken": index}
    has_knob = [
        text for text in refusals if "does not take" in text
    ]  # the knob is there: that says more than one that is not
    return {"refused": (has_knob or refusals)[0]}


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    if device != "cpu":
        return contextlib.nullcontext()
    from vramcast.probing.redirect import cuda_means_cpu

    return cuda_means_cpu()


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def main() -> None:
    end_with_the_parent(int(sys.argv[2]))  # the time limit lives there
    with os.fdopen(int(sys.argv[1]), "w") as out:
        try:
            found: dict[str, Any] = answer(json.load(sys.stdin))
        except VramcastError as error:
            found = {
                "error": {
                    "message": error.message,
                    "advice": error.advice,
                    "exit_code": error.exit_code,
                }
            }
        out.write(json.dumps(found))
    os._exit(0)  # threads and processes that the workload's file started are not waited for


if __name__ == "__main__":
    main()
