"""Which changes a workload takes: its function is loaded in a process of its own.

Every change is compared with the knobs of the function, which is not called.

Run as `python -m vramcast.tuning.inspection FD PARENT`: one JSON request on stdin,
one JSON answer on the descriptor.
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
from typing import Any

from vramcast.errors import EnvironmentProblem, VramcastError, WorkloadError
from vramcast.processes.lifetime import child_environment, end_with_the_parent
from vramcast.records.tune import Reason
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.optimisations import Optimisation, Refusal
from vramcast.workload import separated

SECONDS = 300.0


def inspect_workload(
    workload: str,
    optimisations: Sequence[Optimisation],
    *,
    device: str,
    knobs: Mapping[str, Any],
    timeout_seconds: float = SECONDS,
) -> tuple[dict[str, Any], list[Candidate]]:
    """(the knobs in force, defaults included; every optimisation with the change that is taken)."""
    questions = {one.name: [dict(change.knobs) for change in one.changes] for one in optimisations}
    request = {"workload": workload, "device": device, **separated(knobs), "questions": questions}
    answer = _ask(request, min(SECONDS, timeout_seconds))
    in_force: dict[str, Any] = answer["baseline"]
    return in_force, [
        _candidate(one, answer["answers"][one.name], in_force) for one in optimisations
    ]


def _candidate(
    optimisation: Optimisation, answer: Mapping[str, Any], in_force: Mapping[str, Any]
) -> Candidate:
    size = optimisation.size
    if size is not None:  # which sizes are tried is known later
        refusal = Refusal(Reason.NO_KNOB, f"the workload has no knob {size}")
        return Candidate(optimisation, refusal=None if type(in_force.get(size)) is int else refusal)
    if "refused" in answer:
        code, sentence = answer["refused"]
        return Candidate(optimisation, refusal=Refusal(Reason(code), sentence))
    for name, beginning in optimisation.only_from.items():
        if name in in_force and not str(in_force[name]).startswith(beginning):
            sentence = (
                f"the baseline has {name}={in_force[name]}: with it this would be something else, "
                "not the same made faster"
            )
            return Candidate(optimisation, refusal=Refusal(Reason.OTHER_METHOD, sentence))
    return Candidate(optimisation, optimisation.changes[answer["taken"]])


def _ask(request: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+", errors="replace") as log, tempfile.TemporaryFile("w+") as out:
        # The answer is a file: a pipe stays open as long as what the workload forked holds it.
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


# ------------------------------------------------------------------- in the process of its own
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
            refusals.append(Refusal(Reason.NO_KNOB, f"the workload has no knob {missing[0]}"))
            continue
        try:
            taken = bind(change)
        except WorkloadError as problem:
            sentence = f"the workload does not take it: {problem.message}"
            refusals.append(Refusal(Reason.KNOBS_REFUSED, sentence))
            continue
        if change and all(taken[name] == bound[name] for name in change):
            shown = ", ".join(f"{name}={value}" for name, value in change.items())
            sentence = f"the baseline has it already ({shown})"
            return {"refused": Refusal(Reason.ALREADY_SET, sentence)}
        return {"taken": index}
    # A knob that refuses a value says more than one that is missing.
    first = sorted(refusals, key=lambda refusal: refusal.code == Reason.NO_KNOB)[:1]
    return {"refused": first[0]} if first else {}


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    if device != "cpu":
        return contextlib.nullcontext()
    from vramcast.probing.cuda_on_cpu import cuda_means_cpu

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
