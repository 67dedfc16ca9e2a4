"""Which changes a workload takes: its function is loaded in another process, and not called.

The knobs of a launch line are its placeholders.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.probing.trial import Trial
from vramcast.processes.ask import FailureKind, TaskFailed, ask
from vramcast.records.base import plain_value
from vramcast.records.measurement import Device
from vramcast.records.tune import Reason
from vramcast.tuning.candidates import Candidate
from vramcast.tuning.optimisations import Optimisation, Refusal
from vramcast.workload import bind_knobs, load_function, parse_reference, separated, together
from vramcast.workload.launch_line import typed_knobs

SECONDS = 300.0


def inspect_workload(
    trial: Trial, optimisations: Sequence[Optimisation], *, timeout_seconds: float = SECONDS
) -> tuple[dict[str, Any], list[Candidate]]:
    """The knobs in force, and a candidate for every optimisation."""
    if trial.line:
        found = _inspect_line(trial, optimisations)
    else:
        found = _inspect_function(trial, optimisations, timeout_seconds)
    in_force: dict[str, Any] = found["knobs"]
    answers = zip(optimisations, found["answers"], strict=True)
    return in_force, [_candidate(one, taken, in_force) for one, taken in answers]


def inspect_bound(
    optimisations: Sequence[Optimisation],
    in_force: Mapping[str, Any],
    bind: Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any] | str]],
) -> list[Candidate]:
    """The same candidates, where `bind` says for all changes at once what the knobs would be."""
    asked = [change.knobs for one in optimisations for change in one.changes]
    answers = {str(change): found for change, found in zip(asked, bind(asked), strict=True)}

    def bound(change: Mapping[str, Any]) -> Mapping[str, Any]:
        found = answers[str(change)]
        if isinstance(found, str):
            raise WorkloadError(found)
        return found

    def answer_for(one: Optimisation) -> Any:
        return taken([change.knobs for change in one.changes], in_force, bound)

    return [_candidate(one, answer_for(one), in_force) for one in optimisations]


def _inspect_line(trial: Trial, optimisations: Sequence[Optimisation]) -> dict[str, Any]:
    """The same for a launch line. Only running the program shows whether it takes a value."""
    in_force = typed_knobs(trial.knobs)
    return {
        "knobs": in_force,
        "answers": [
            taken([change.knobs for change in one.changes], in_force, lambda to: {**in_force, **to})
            for one in optimisations
        ],
    }


def _inspect_function(
    trial: Trial, optimisations: Sequence[Optimisation], timeout_seconds: float
) -> dict[str, Any]:
    request = {
        "workload": parse_reference(trial.workload).portable,
        "device": trial.device,
        **separated(trial.knobs),
        "changes": [[change.knobs for change in one.changes] for one in optimisations],
    }
    seconds = min(SECONDS, timeout_seconds)
    try:
        found: dict[str, Any] = ask(
            "vramcast.tuning.inspection:answer", request, timeout_seconds=seconds
        )
        return found
    except TaskFailed as failure:
        if failure.kind is FailureKind.NOT_STARTED:
            raise
        problem, advice = f".\n{failure.message}", "Import it in Python first."
        if failure.kind is FailureKind.TIMEOUT:
            problem, advice = f" within {seconds:.3g} s.", "Does its file wait?"
            if seconds < SECONDS:
                advice = "Give more time with --budget, for example 20min."
        raise WorkloadError(f"{trial.workload} could not be imported{problem}", advice) from None


def _candidate(
    optimisation: Optimisation, taken: int | list[str] | None, in_force: Mapping[str, Any]
) -> Candidate:
    """`taken` is the index of the change that is taken, or why none is; None where the optimisation
    lists none."""
    size = optimisation.size
    if size is not None:  # the sizes to try are chosen later
        has_knob = type(in_force.get(size)) is int
        return Candidate(optimisation, refusal=None if has_knob else _no_knob(size))
    if taken is None:
        return Candidate(optimisation)
    if not isinstance(taken, int):
        return Candidate(optimisation, refusal=Refusal(Reason(taken[0]), taken[1]))
    for name, beginning in optimisation.only_from.items():
        if name in in_force and not str(in_force[name]).startswith(beginning):
            sentence = (
                f"the baseline has {name}={in_force[name]}: with it this would be something else, "
                "not the same made faster"
            )
            return Candidate(optimisation, refusal=Refusal(Reason.OTHER_METHOD, sentence))
    return Candidate(optimisation, optimisation.changes[taken])


def _no_knob(name: str) -> Refusal:
    return Refusal(Reason.NO_KNOB, f"the workload has no knob {name}")


def answer(request: dict[str, Any], _: object = None) -> dict[str, Any]:
    """The task: which change of each optimisation the workload takes."""
    with ExitStack() as stack:
        if request["device"] == Device.CPU:
            from vramcast.probing.cuda_on_cpu import cuda_means_cpu

            stack.enter_context(cuda_means_cpu())
        function = load_function(parse_reference(request["workload"]))
    given = together(request)
    in_force = bind_knobs(function, given)

    def bound(change: Mapping[str, Any]) -> dict[str, Any]:
        return bind_knobs(function, {**given, **change})

    return {
        "knobs": {name: plain_value(value) for name, value in in_force.items()},
        "answers": [taken(changes, in_force, bound) for changes in request["changes"]],
    }


def taken(
    changes: Sequence[Mapping[str, Any]],
    in_force: Mapping[str, Any],
    bound: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> int | Refusal | None:
    """The index of the first change that the workload takes, or why there is none."""
    refusals = []
    for index, change in enumerate(changes):
        missing = [_no_knob(name) for name in change if name not in in_force]
        if missing:
            refusals.append(missing[0])
            continue
        try:
            changed = bound(change)
        except WorkloadError as problem:
            sentence = f"the workload does not take it: {problem.message}"
            refusals.append(Refusal(Reason.KNOBS_REFUSED, sentence))
            continue
        if change and changed == in_force:
            shown = ", ".join(f"{name}={value}" for name, value in change.items())
            return Refusal(Reason.ALREADY_SET, f"the baseline has it already ({shown})")
        return index
    # A knob that refuses a value is a better reason than one that is missing.
    return min(refusals, key=lambda one: one.code == Reason.NO_KNOB, default=None)
