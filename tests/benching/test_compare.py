"""Whether a difference is real: the statistics against known values, and what may be compared at
all.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from vramcast.benching.compare import compare_runs
from vramcast.errors import UsageError
from vramcast.probing.significance import (
    Noise,
    holm,
    mean_noise,
    paired,
    t_test,
    welch,
)
from vramcast.records.bench import BenchTrial, Comparison, Protocol, TrainedRun

MakeTrial = Callable[..., BenchTrial]
HERE = {"device": "cpu", "gpu": None, "torch_version": "2.13.0", "schedulefree_version": "1.4.1"}


def noisy(mean: float, seed: int, noise: float = 0.01, count: int = 30) -> list[float | None]:
    generator = random.Random(seed)
    return [mean + generator.gauss(0, noise) for _ in range(count)]


@pytest.fixture
def run(make_trial: MakeTrial) -> Callable[..., TrainedRun]:
    def make(
        model: str, losses: Sequence[float | None], seed: int = 1, **changes: object
    ) -> TrainedRun:
        trial = replace(
            make_trial(seed=seed),
            model=model,
            **{k: v for k, v in changes.items() if k in BenchTrial.__dataclass_fields__},
        )  # type: ignore[arg-type]
        others = {k: v for k, v in changes.items() if k not in BenchTrial.__dataclass_fields__}
        values = {
            "outcome": "ok",
            "environment": HERE,
            "step_seconds": [0.1] * len(losses),
            **others,
        }
        return TrainedRun(trial=trial, losses=list(losses), **values)  # type: ignore[arg-type]

    return make


MakeRun = Callable[..., TrainedRun]


def test_students_t_has_the_values_of_the_tables() -> None:
    for degrees, t_975 in (
        (1, 12.7062),
        (2, 4.30265),
        (5, 2.57058),
        (10, 2.22814),
        (30, 2.04227),
        (1000, 1.96234),
    ):
        test = t_test(t_975, Noise(1.0, degrees))
        assert test.p_value == pytest.approx(0.05, rel=1e-4)
        assert test.interval == pytest.approx((0.0, 2 * t_975), abs=1e-4 * t_975)
    assert t_test(0.0, Noise(1.0, 7)).p_value == 1.0


def test_welchs_test_gives_what_is_computed_by_hand() -> None:
    """Variances 1 and 4 of three numbers each: t = 2 / sqrt(5/3), (5/3)² / ((1/3)²/2 + (4/3)²/2) =
    50/17 degrees.
    """
    test = welch([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    t, degrees = 2 / math.sqrt(5 / 3), 50 / 17
    assert test.difference / test.standard_error == pytest.approx(t)
    constant = (
        math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    )
    width = t / 10_000
    inside = sum(
        constant * (1 + ((i + 0.5) * width) ** 2 / degrees) ** (-(degrees + 1) / 2) * width
        for i in range(10_000)
    )
    assert test.p_value == pytest.approx(1 - 2 * inside, abs=1e-7)
    assert test.interval[0] < 0 < test.interval[1]


def test_numbers_without_spread_are_either_the_same_or_surely_different() -> None:
    assert welch([1.0, 1.0], [1.0, 1.0]).p_value == 1.0
    assert welch([1.0, 1.0], [2.0, 2.0]).p_value == 0.0


def test_the_noise_of_independent_numbers_is_the_usual_standard_error() -> None:
    values = [value for value in noisy(1.5, 3, noise=0.1, count=400) if value is not None]
    assert mean_noise(values).standard_error == pytest.approx(0.1 / 20, rel=0.3)


def test_related_numbers_are_worth_fewer_than_independent_ones_and_a_slope_is_no_noise() -> None:
    generator, related, value = random.Random(5), [], 0.0
    for _ in range(400):
        value = 0.9 * value + generator.gauss(0, 0.1)
        related.append(value)
    true = 0.1 / (1 - 0.9) / math.sqrt(400)
    assert 0.4 * true < mean_noise(related).standard_error < 1.6 * true
    assert mean_noise([2.0 - 0.01 * i for i in range(100)]).standard_error == 0.0
    assert mean_noise([1.0, 2.0]).standard_error == math.inf


def test_several_tests_make_every_p_larger() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_numbers_that_resemble_their_neighbours_raise_few_false_alarms() -> None:
    """As the gaps between two models batch by batch do: correlations of 0.6 to 0.85 in
    benchmarks/bench. 5 in 100 would be right.
    """
    alarms = 0
    for seed in range(400):
        generator, value, values = random.Random(seed), 0.0, []
        for _ in range(200):
            value = 0.8 * value + generator.gauss(0, 1)
            values.append(value)
        alarms += t_test(statistics.fmean(values[100:]), mean_noise(values[100:])).p_value < 0.05
    assert alarms <= 48


def test_the_noise_test_raises_few_false_alarms(run: MakeRun) -> None:
    """The same mean, other noise: about 5 in 100 are called different."""
    alarms = sum(
        compare_runs([run("a", noisy(1.5, i)), run("b", noisy(1.5, 1000 + i))]).decided
        for i in range(100)
    )
    assert alarms <= 14


def test_a_clear_difference_over_seeds_is_real_and_a_small_one_is_not(run: MakeRun) -> None:
    def compared(gap: float) -> Comparison:
        means = (("b", 1.5 + gap), ("a", 1.5))
        losses = [
            (name, seed, noisy(mean + 0.01 * seed, seed + ord(name), 0.001))
            for name, mean in means
            for seed in (1, 2, 3)
        ]
        return compare_runs([run(name, values, seed) for name, seed, values in losses])

    clear, small = compared(0.2), compared(0.0002)
    assert [model.model for model in clear.models] == ["a", "b"]
    assert clear.decided
    assert clear.differences[0].difference == pytest.approx(0.2, abs=0.01)
    assert clear.models[0].spread == pytest.approx(0.01, abs=0.003)
    assert "paired t test over 3 seeds" in clear.differences[0].how
    assert not small.decided
    assert Comparison.from_json(clear.to_json()) == clear


def test_shared_seeds_are_compared_pair_by_pair_and_others_by_welchs_test(run: MakeRun) -> None:
    """What a seed does to both models is twenty times the gap between them: seen in pairs, and lost
    among other seeds.
    """

    def runs(model: str, gap: float, seeds: Sequence[int], **changes: object) -> list[TrainedRun]:
        return [
            run(model, [1.5 + 0.2 * (seed % 3) + gap + 0.001 * (seed % 2)] * 30, seed, **changes)
            for seed in seeds
        ]

    def found(*groups: list[TrainedRun]) -> Comparison:
        return compare_runs([each for group in groups for each in group])

    shared = found(runs("a", 0.0, (1, 2, 3)), runs("b", 0.01, (1, 2, 3, 4)))
    assert shared.decided
    assert "paired t test over 3 seeds" in shared.differences[0].how
    for others in (
        (4, 5, 6),
        (3, 4, 5),
        (2, 3, 4, 5, 6),
    ):  # two pairs of five say less than all five
        apart = found(runs("a", 0.0, (1, 2, 3)), runs("b", 0.01, others))
        assert not apart.decided
        assert apart.differences[0].how == "Welch's t test over seeds"
    other_batches = found(runs("a", 0.0, (1, 2, 3)), runs("b", 0.01, (1, 2, 3), batch_size=2))
    assert "Welch" in other_batches.differences[0].how


def test_a_model_that_is_behind_over_the_shared_seeds_is_not_called_better(run: MakeRun) -> None:
    """The best mean has one seed more, and a lucky one."""
    best = [run("a", [loss] * 30, seed) for seed, loss in ((1, 1.60), (2, 1.61), (3, 1.0))]
    other = [run("b", [loss] * 30, seed) for seed, loss in ((1, 1.50), (2, 1.5101))]
    found = compare_runs([*best, *other])
    assert found.models[0].model == "a"
    assert found.differences[0].difference < 0
    assert not found.decided


def test_the_paired_test_gives_what_is_computed_by_hand() -> None:
    """Gaps 1, 2, 3: mean 2, standard error 1/sqrt(3), 2 degrees: t = 2·sqrt(3), p = 1 - t/sqrt(2 +
    t²) for 2 degrees.
    """
    test = paired([1.0, 5.0, 2.0], [2.0, 7.0, 5.0])
    t = 2 * math.sqrt(3)
    assert test.difference == pytest.approx(2.0)
    assert test.p_value == pytest.approx(1 - t / math.sqrt(2 + t * t))


def test_with_one_seed_the_noise_is_the_runs_own_and_that_is_said(run: MakeRun) -> None:
    found = compare_runs([run("a", noisy(1.5, 1)), run("b", noisy(1.6, 2))])
    assert found.decided
    assert found.models[0].spread is None
    assert found.models[0].noise == pytest.approx(0.01 / math.sqrt(10), rel=0.8)
    assert any("one seed" in note and "--seeds" in note for note in found.notes)


def test_the_same_batches_are_compared_one_by_one(run: MakeRun) -> None:
    """The batches' own ups and downs are a hundred times the gap between the models, and the same
    for both.
    """
    shared = [value for value in noisy(1.5, 1, noise=0.5) if value is not None]
    found = compare_runs(
        [
            run("a", shared),
            run("b", [loss + 0.005 + 0.0001 * (i % 3) for i, loss in enumerate(shared)]),
        ]
    )
    assert found.decided
    other_batches = compare_runs(
        [run("a", shared, seed=1), run("b", [loss + 0.005 for loss in shared], seed=2)]
    )
    assert not other_batches.decided


def test_three_models_are_tested_against_the_best_one(run: MakeRun) -> None:
    found = compare_runs(
        [
            run(name, noisy(mean, i))
            for i, (name, mean) in enumerate((("c", 1.9), ("a", 1.5), ("b", 1.7)))
        ]
    )
    assert [d.model for d in found.differences] == ["b", "c"]
    assert any("Holm" in note for note in found.notes)


def test_runs_that_saw_different_numbers_of_tokens_are_marked(run: MakeRun) -> None:
    found = compare_runs([run("a", noisy(1.5, 1)), run("b", noisy(1.6, 2), batch_size=2)])
    assert any("different numbers of tokens" in note for note in found.notes)


def test_runs_under_different_conditions_are_refused_with_every_reason(
    run: MakeRun, protocol: Protocol
) -> None:
    other = replace(protocol, lr=0.5)
    data = replace(run("a", []).trial.data, hash="sha256:ffff")
    strange = run(
        "b",
        noisy(1.5, 2),
        protocol=other,
        protocol_hash=other.hash,
        data=data,
        environment={**HERE, "torch_version": "2.10.0"},
    )
    with pytest.raises(UsageError) as caught:
        compare_runs([run("a", noisy(1.5, 1)), strange])
    for reason in ("different protocols", "different data", "different torch version", "2.10.0"):
        assert reason in caught.value.message


def test_what_cannot_be_an_opinion_is_refused(run: MakeRun) -> None:
    a, b = run("a", noisy(1.5, 1)), run("b", noisy(1.5, 2))
    for runs, reason in (
        ([a], "only one model"),
        ([], "No run"),
        ([a, b, a], "twice with the same seed"),
        ([a, replace(b, outcome="diverged")], "diverged"),
        ([a, b, run("a", noisy(1.5, 3), seed=2, model_hash="1")], "changed between its runs"),
    ):
        with pytest.raises(UsageError, match=reason):
            compare_runs(runs)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step_seconds", [0.1]),
        ("step_seconds", [0.0] * 40),
        ("losses", [1e101] * 40),
        ("losses", [None] * 40),
        ("step_memory_bytes", []),
        ("outcome", "fine"),
    ],
)
def test_a_record_of_a_run_whose_parts_do_not_fit_together_is_refused_when_it_is_read(
    run: MakeRun, field: str, value: object
) -> None:
    data = run("a", [1.5] * 40, step_memory_bytes=[1] * 40).to_dict()
    assert TrainedRun.from_dict(data).to_dict() == data
    with pytest.raises(UsageError, match=f"result.json: .*{field}"):
        TrainedRun.from_dict({**data, field: value}, "result.json")


@pytest.mark.parametrize("interval", [[1e30, 0.05], [0.0], [0.0, 0.1, 0.2]])
def test_a_comparison_with_an_interval_that_is_none_is_refused(
    run: MakeRun, interval: list[float]
) -> None:
    data = compare_runs([run("a", noisy(1.5, 1)), run("b", noisy(1.6, 2))]).to_dict()
    assert Comparison.from_dict(data).to_dict() == data
    data["differences"][0]["interval"] = interval
    with pytest.raises(UsageError, match="comparison.json: differences.*interval"):
        Comparison.from_dict(data, "comparison.json")
