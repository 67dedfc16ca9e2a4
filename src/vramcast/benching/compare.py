"""Which of several models learned best under one protocol, and whether that is more than noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations

from vramcast.errors import UsageError
from vramcast.probing.significance import (
    LEVEL,
    Noise,
    Test,
    holm,
    mean_noise,
    paired,
    t_test,
    welch,
)
from vramcast.records.bench import DECISIVE, TrainedRun, TrainingOutcome, by_model, tokens_note
from vramcast.records.comparison import Comparison, Difference, ModelResult

ONE_SEED = (
    "one seed: the noise of {metric} is estimated from the run's own losses; "
    "another seed may move it by more (--seeds 1,2,3)"
)
SAME_BATCHES = "the same seed is the same batches"


def compare_runs(runs: Sequence[TrainedRun]) -> Comparison:
    _refuse_incomparable(runs)
    groups = by_model(runs)
    _refuse_groups(groups)
    ordered = sorted(groups, key=lambda group: statistics.fmean(run.last_loss for run in group))
    tests = [_test(ordered[0], other) for other in ordered[1:]]
    corrected = holm([*(test.p_value for test, _ in tests), *_p_values_of_the_others(ordered[1:])])
    first = runs[0]
    return Comparison(
        metric=first.trial.protocol.metric,
        protocol=first.trial.protocol.name,
        protocol_hash=first.trial.protocol_hash,
        data=f"{first.trial.data.name} ({first.trial.data.hash})",
        environment={name: first.environment.get(name) for name in DECISIVE},
        models=[summary_of(group) for group in ordered],
        differences=[
            _difference(group, test, p, how)
            for group, (test, how), p in zip(ordered[1:], tests, corrected, strict=False)
        ],
        notes=_notes(ordered, len(corrected)),
    )


def _p_values_of_the_others(groups: Sequence[list[TrainedRun]]) -> list[float]:
    """All pairs count as tests: which model is best was seen only in these same runs."""
    return [_test(a, b)[0].p_value for a, b in combinations(groups, 2)]


def summary_of(group: Sequence[TrainedRun]) -> ModelResult:
    """One model over all its seeds."""
    losses = [run.last_loss for run in group]
    speeds = [run.tokens_per_second for run in group if run.tokens_per_second is not None]
    noise = mean_noise(group[0].last_losses).standard_error
    return ModelResult(
        model=group[0].trial.label,
        parameters=group[0].parameters,
        seeds=[run.trial.seed for run in group],
        last_losses=losses,
        mean_last_loss=statistics.fmean(losses),
        spread=statistics.stdev(losses) if len(losses) > 1 else None,
        noise=noise if len(losses) == 1 and math.isfinite(noise) else None,
        tokens=group[0].tokens,
        tokens_per_second=statistics.median(speeds) if speeds else None,
        peak_memory_bytes=max((b for run in group for b in run.step_memory_bytes), default=None),
        training_seconds=statistics.fmean(run.training_seconds for run in group),
    )


def _test(best: list[TrainedRun], other: list[TrainedRun]) -> tuple[Test, str]:
    """The test that suits the runs, and its name.

    Where most seeds are not shared, a test over all of them says more than one over few pairs.
    """
    pairs = _same_batches(best, other)
    if len(pairs) > 1 and 2 * len(pairs) > max(len(best), len(other)):
        losses = [[run.last_loss for run in side] for side in zip(*pairs, strict=True)]
        return paired(*losses), f"paired t test over {len(pairs)} seeds; {SAME_BATCHES}"
    if len(best) > 1 and len(other) > 1:
        groups = [[run.last_loss for run in side] for side in (best, other)]
        return welch(*groups), "Welch's t test over seeds"
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


def _same_batches(
    best: list[TrainedRun], other: list[TrainedRun]
) -> list[tuple[TrainedRun, TrainedRun]]:
    """Pairs of runs that saw the same batches: the same seed, steps and batch size."""
    seeds = {run.trial.seed: run for run in best}
    pairs = [(seeds[run.trial.seed], run) for run in other if run.trial.seed in seeds]
    return [(a, b) for a, b in pairs if a.tokens == b.tokens and len(a.losses) == len(b.losses)]


def _difference(group: list[TrainedRun], test: Test, p_value: float, how: str) -> Difference:
    return Difference(
        model=group[0].trial.label,
        difference=test.difference,
        standard_error=test.standard_error,
        interval=list(test.interval),
        p_value=p_value,
        # Over the shared seeds alone the other model may be ahead.
        distinguishable=p_value < LEVEL and test.difference > 0,
        how=how,
    )


def _notes(groups: list[list[TrainedRun]], num_tests: int) -> list[str]:
    notes = []
    protocol = groups[0][0].trial.protocol
    if any(len(group) == 1 for group in groups):
        notes.append(ONE_SEED.format(metric=protocol.metric))
    if num_tests > 1:
        notes.append(
            f"p is corrected for the {num_tests} tests of all pairs (Holm); "
            "an interval is that of its own difference alone"
        )
    runs = [run for group in groups for run in group]
    different_tokens = tokens_note(runs)
    if different_tokens:
        notes.append(different_tokens)
    short = [run.trial.label for run in runs if len(run.losses) < protocol.last_steps]
    if short:
        notes.append(f"fewer steps than {protocol.metric} asks for: {', '.join(short)}")
    return notes


def _refuse_incomparable(runs: Sequence[TrainedRun]) -> None:
    """With every reason at once: whoever has to train again wants to know them all."""
    if not runs:
        raise UsageError("No run is given.", "Give folders that vramcast bench wrote.")
    reasons = []
    for name in _conditions(runs[0]):
        examples: dict[str, str] = {}
        for run in runs:
            identity, shown = _conditions(run)[name]
            examples.setdefault(identity, f"{run.trial.label} has {shown}")
        if len(examples) > 1:
            reasons.append(f"different {name}: {'; '.join(examples.values())}")
    if reasons:
        raise UsageError(
            "These runs cannot be compared.\n" + "\n".join(reasons),
            "Train them again under the same conditions.",
        )


def _conditions(run: TrainedRun) -> dict[str, tuple[str, str]]:
    """What must be the same: how it is told apart, and how it is shown."""
    trial = run.trial
    environment = {name: str(run.environment.get(name)) for name in DECISIVE}
    return {
        "protocols": (trial.protocol_hash, f"{trial.protocol.name} ({trial.protocol_hash[:8]})"),
        "data": (trial.data.hash, f"{trial.data.name} ({trial.data.hash.partition(':')[2][:8]})"),
        **{name.replace("_", " "): (value, value) for name, value in environment.items()},
    }


def _refuse_groups(groups: list[list[TrainedRun]]) -> None:
    for group in groups:
        label = group[0].trial.label
        seeds = [run.trial.seed for run in group]
        if len(set(seeds)) < len(seeds):
            raise UsageError(
                f"{label} is there twice with the same seed.",
                "Give every run once: the same seed is no second opinion.",
            )
        if len({run.trial.model_hash for run in group}) > 1:
            raise UsageError(
                f"The file of {label} was changed between its runs.",
                "Train it again with all seeds.",
            )
        diverged = [run.trial.seed for run in group if run.outcome == TrainingOutcome.DIVERGED]
        if diverged:
            raise UsageError(
                f"{label} diverged with seed {diverged[0]}: its losses are not finite, "
                "and there is nothing to compare.",
                "Leave it out, or train it again under a protocol with a smaller lr.",
            )
    if len(groups) < 2:
        raise UsageError(
            f"There is only one model: {groups[0][0].trial.label}.",
            "Give the runs of at least two.",
        )
