"""Which of several models learned best under the same protocol, and whether the difference is more than noise."""

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
from vramcast.records.bench import DECISIVE, TrainedRun, tokens_note
from vramcast.records.comparison import Comparison, Difference, ModelResult

ONE_SEED = "one seed: the noise of {metric} is estimated from the run's own losses; another seed may move it by more (--seeds 1,2,3)"
PAIRED_SEEDS = "the same seed is the same batches"
PAIRED = "the same seed is the same batches, so the two are compared batch by batch"


def compare_runs(runs: Sequence[TrainedRun]) -> Comparison:
    try:
        return _compared(runs)
    except OverflowError:
        raise UsageError(
            "The losses of these runs are too large to be compared.",
            "The records were edited: train the models again.",
        ) from None
    except (
        ArithmeticError,
        LookupError,
        ValueError,
    ) as problem:  # every field is of its type, and still they need not fit together
        what = f"These runs cannot be compared: their parts do not fit together ({type(problem).__name__}: {problem})."
        raise UsageError(
            what, "The records were edited or made by another program: train the models again."
        ) from None


def _compared(runs: Sequence[TrainedRun]) -> Comparison:
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
    """Which model is the best was seen in the same runs: any of them might have been, so that all pairs count as tests."""
    return [_test(a, b)[0].p_value for a, b in combinations(groups, 2)]


def by_model(runs: Sequence[TrainedRun]) -> list[list[TrainedRun]]:
    """The seeds of every model, in the order in which the models first come."""
    groups: dict[str, list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault(run.trial.label, []).append(run)
    return list(groups.values())


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
        peak_memory_bytes=max(
            (run.peak_memory_bytes for run in group if run.peak_memory_bytes is not None),
            default=None,
        ),
        training_seconds=statistics.fmean(run.training_seconds for run in group),
    )


def _test(best: list[TrainedRun], other: list[TrainedRun]) -> tuple[Test, str]:
    """The test that fits the runs, and which it was. Where most seeds are not shared, all of them say more than a few pairs."""
    pairs = _same_batches(best, other)
    if len(pairs) > 1 and 2 * len(pairs) > max(len(best), len(other)):
        losses = [[run.last_loss for run in side] for side in zip(*pairs, strict=True)]
        return paired(*losses), f"paired t test over {len(pairs)} seeds; {PAIRED_SEEDS}"
    if len(best) > 1 and len(other) > 1:
        return welch(
            [run.last_loss for run in best], [run.last_loss for run in other]
        ), "Welch's t test over seeds"
    if pairs:
        gaps = [
            b - a for a, b in zip(pairs[0][0].last_losses, pairs[0][1].last_losses, strict=True)
        ]
        return t_test(statistics.fmean(gaps), mean_noise(gaps)), f"one seed; {PAIRED}"
    noises = [mean_noise(group[0].last_losses) for group in (best, other)]
    error = math.hypot(*(noise.standard_error for noise in noises))
    both = Noise(error, min(noise.degrees for noise in noises))
    return t_test(
        other[0].last_loss - best[0].last_loss, both
    ), "one seed; noise of each run's own last losses"


def _same_batches(
    best: list[TrainedRun], other: list[TrainedRun]
) -> list[tuple[TrainedRun, TrainedRun]]:
    """Pairs of runs that saw the same batches: those of the same seed, as many steps and the same batch size."""
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
        distinguishable=p_value < LEVEL
        and test.difference > 0,  # over shared seeds alone, the other one may be ahead
        how=how,
    )


def _notes(groups: list[list[TrainedRun]], num_tests: int) -> list[str]:
    notes = []
    protocol = groups[0][0].trial.protocol
    if any(len(group) == 1 for group in groups):
        notes.append(ONE_SEED.format(metric=protocol.metric))
    if num_tests > 1:
        notes.append(
            f"p is corrected for the {num_tests} tests of all pairs (Holm); an interval is that of its own difference alone"
        )
    different_tokens = tokens_note([run for group in groups for run in group])
    if different_tokens:
        notes.append(different_tokens)
    short = [
        run.trial.label
        for group in groups
        for run in group
        if len(run.losses) < protocol.last_steps
    ]
    if short:
        notes.append(f"fewer steps than {protocol.metric} asks for: {', '.join(short)}")
    return notes


def _refuse_incomparable(runs: Sequence[TrainedRun]) -> None:
    """Every reason at once: who has to train again wants to know them all."""
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
    """What must be the same: by what it is recognised, and how it is shown."""
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
        diverged = next((run.trial.seed for run in group if run.outcome == "diverged"), None)
        if diverged is not None:
            raise UsageError(
                f"{label} diverged with seed {diverged}: its losses are not finite, and there is nothing to compare.",
                "Leave it out, or train it again under a protocol with a smaller lr.",
            )
    if len(groups) < 2:
        raise UsageError(
            f"There is only one model: {groups[0][0].trial.label}.",
            "Give the runs of at least two.",
        )
