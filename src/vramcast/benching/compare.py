"""Which of several models learned best under one protocol, and whether the difference is real."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from vramcast.errors import UsageError
from vramcast.probing import significance
from vramcast.probing.significance import LEVEL, Noise, Test, mean_noise, t_test
from vramcast.records.bench import (
    DECISIVE,
    Comparison,
    Difference,
    ModelResult,
    TrainedRun,
    TrainingOutcome,
    by_model,
    tokens_note,
)

Group = list[TrainedRun]  # one model with all its seeds
SAME_BATCHES = "the same seed is the same batches"


def compare_runs(runs: Sequence[TrainedRun]) -> Comparison:
    _refuse_incomparable(runs)
    groups = by_model(runs)
    _refuse_groups(groups)
    ordered = sorted(groups, key=lambda group: statistics.fmean(_last_losses(group)))
    # Pairs with the best model come first. The correction counts all pairs, because the same runs
    # also decide which model is best.
    tests = [_test(a, b) for a, b in combinations(ordered, 2)]
    corrected = significance.holm([test.p_value for test, _ in tests])
    trial = runs[0].trial
    return Comparison(
        metric=trial.protocol.metric,
        protocol=trial.protocol.name,
        protocol_hash=trial.protocol_hash,
        data=f"{trial.data.name} ({trial.data.hash})",
        environment={name: runs[0].environment.get(name) for name in DECISIVE},
        models=[summary_of(group) for group in ordered],
        differences=[
            Difference(
                model=group[0].trial.label,
                **vars(replace(test, p_value=p_value)),
                # With only the shared seeds, the other model may be ahead.
                distinguishable=p_value < LEVEL and test.difference > 0,
                how=how,
            )
            for group, (test, how), p_value in zip(ordered[1:], tests, corrected, strict=False)
        ],
        notes=_notes(ordered, len(tests)),
    )


def _last_losses(group: Sequence[TrainedRun]) -> list[float]:
    return [run.last_loss for run in group]


def summary_of(group: Sequence[TrainedRun]) -> ModelResult:
    first, losses = group[0], _last_losses(group)
    speeds = [run.tokens_per_second for run in group if run.tokens_per_second is not None]
    noise = mean_noise(first.last_losses).standard_error
    return ModelResult(
        model=first.trial.label,
        parameters=first.parameters,
        seeds=[run.trial.seed for run in group],
        last_losses=losses,
        mean_last_loss=statistics.fmean(losses),
        spread=statistics.stdev(losses) if len(losses) > 1 else None,
        noise=noise if len(losses) == 1 and math.isfinite(noise) else None,
        tokens=first.tokens,
        tokens_per_second=statistics.median(speeds) if speeds else None,
        peak_memory_bytes=max((b for run in group for b in run.step_memory_bytes), default=None),
        training_seconds=statistics.fmean(run.training_seconds for run in group),
    )


def _test(best: Group, other: Group) -> tuple[Test, str]:
    """The test that suits the runs, and its name."""
    seeds = {run.trial.seed: run for run in best}
    same_seed = [(seeds[run.trial.seed], run) for run in other if run.trial.seed in seeds]
    # Two runs saw the same batches only if steps and batch size are the same too.
    pairs = [
        (a, b) for a, b in same_seed if a.tokens == b.tokens and len(a.losses) == len(b.losses)
    ]
    # If few seeds are shared, a test over all seeds says more than one over pairs.
    if len(pairs) > 1 and 2 * len(pairs) > max(len(best), len(other)):
        test = significance.paired(*map(_last_losses, zip(*pairs, strict=True)))
        return test, f"paired t test over {len(pairs)} seeds; {SAME_BATCHES}"
    if len(best) > 1 and len(other) > 1:
        test = significance.welch(_last_losses(best), _last_losses(other))
        return test, "Welch's t test over seeds"
    if pairs:
        a, b = (run.last_losses for run in pairs[0])
        gaps = [y - x for x, y in zip(a, b, strict=True)]
        how = f"one seed; {SAME_BATCHES}, so the two are compared batch by batch"
        return t_test(statistics.fmean(gaps), mean_noise(gaps)), how
    noises = [mean_noise(group[0].last_losses) for group in (best, other)]
    error = math.hypot(*(noise.standard_error for noise in noises))
    both = Noise(error, min(noise.degrees for noise in noises))
    difference = other[0].last_loss - best[0].last_loss
    return t_test(difference, both), "one seed; noise of each run's own last losses"


def _notes(groups: list[Group], num_tests: int) -> list[str]:
    runs = [run for group in groups for run in group]
    protocol, notes = runs[0].trial.protocol, []
    if any(len(group) == 1 for group in groups):
        notes.append(
            f"one seed: the noise of {protocol.metric} is estimated from the run's own losses; "
            "another seed may move it by more (--seeds 1,2,3)"
        )
    if num_tests > 1:
        notes.append(
            f"p is corrected for the {num_tests} tests of all pairs (Holm); "
            "the intervals are not corrected"
        )
    if different_tokens := tokens_note(runs):
        notes.append(different_tokens)
    short = [run.trial.label for run in runs if len(run.losses) < protocol.last_steps]
    if short:
        notes.append(f"fewer steps than {protocol.metric} asks for: {', '.join(short)}")
    return notes


def _refuse_incomparable(runs: Sequence[TrainedRun]) -> None:
    """Raises an error if the runs cannot be compared, with all reasons at once."""
    if not runs:
        raise UsageError("No run is given.", "Give folders that vramcast bench wrote.")
    examples: dict[str, dict[str, str]] = {}
    for run in runs:
        for name, (identity, shown) in _conditions(run).items():
            example = f"{run.trial.label} has {shown}"
            examples.setdefault(name, {}).setdefault(identity, example)
    reasons = [
        f"different {name}: {'; '.join(different.values())}"
        for name, different in examples.items()
        if len(different) > 1
    ]
    if reasons:
        raise UsageError(
            "These runs cannot be compared.\n" + "\n".join(reasons),
            "Train them again under the same conditions.",
        )


def _conditions(run: TrainedRun) -> dict[str, tuple[str, str]]:
    """What must be the same in all runs: a value to compare, and a text to show."""
    trial, data = run.trial, run.trial.data
    environment = {name: str(run.environment.get(name)) for name in DECISIVE}
    return {
        "protocols": (trial.protocol_hash, f"{trial.protocol.name} ({trial.protocol_hash[:8]})"),
        "data": (data.hash, f"{data.name} ({data.hash.partition(':')[2][:8]})"),
        **{name.replace("_", " "): (value, value) for name, value in environment.items()},
    }


def _refuse_groups(groups: list[Group]) -> None:
    for group in groups:
        label = group[0].trial.label
        if len({run.trial.seed for run in group}) < len(group):
            raise UsageError(
                f"{label} is there twice with the same seed.",
                "Give every run once: the same seed is no second opinion.",
            )
        if len({run.trial.model_hash for run in group}) > 1:
            raise UsageError(
                f"The file of {label} was changed between its runs.",
                "Train it again with all seeds.",
            )
        for run in group:
            if run.outcome == TrainingOutcome.DIVERGED:
                raise UsageError(
                    f"{label} diverged with seed {run.trial.seed}: its losses are not finite, "
                    "and there is nothing to compare.",
                    "Leave it out, or train it again under a protocol with a smaller lr.",
                )
    if len(groups) < 2:
        raise UsageError(
            f"There is only one model: {groups[0][0].trial.label}.",
            "Give the runs of at least two.",
        )
