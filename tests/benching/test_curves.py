"""Loss curves as lines of text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

from vramcast.records.bench import TrainedRun, Trial
from vramcast.reporting.bench import show_runs
from vramcast.reporting.curves import curves, pieces


@pytest.fixture
def run(make_trial: Callable[..., Trial]) -> Callable[..., TrainedRun]:
    def make(
        losses: list[float | None], seconds: float = 1.0, seed: int = 1, outcome: str = "ok"
    ) -> TrainedRun:
        trial = make_trial(seed=seed)
        return TrainedRun(
            trial=trial,
            outcome=outcome,
            environment={},
            losses=losses,
            step_seconds=[seconds] * len(losses),
        )

    return make


MakeRun = Callable[..., TrainedRun]


def test_a_piece_is_the_mean_of_the_losses_that_lie_in_it(run: MakeRun) -> None:
    assert pieces(run([8.0, 4.0, 2.0, 1.0]), "step", 4, width=2) == [6.0, 1.5]
    assert pieces(run([8.0, None, 2.0, 1.0]), "step", 4, width=2) == [8.0, 1.5]
    assert pieces(run([8.0, 4.0], seconds=2.0), "time", 8.0, width=4) == [8.0, 4.0, None, None]


def test_all_lines_are_on_one_scale_and_a_faster_model_ends_earlier(run: MakeRun) -> None:
    losses = [8.0, 4.0, 2.0, 1.0]
    fast, slow = run(losses, 1.0), run(losses, 2.0)
    (by_step, _), scale = curves([fast, slow], "step", width=4)
    assert (by_step, scale) == (
        "█▆▃▁",
        "8.00 or more to 1.00",
    )  # by logarithm: every halving is the same
    by_time, _ = curves([fast, slow], "time", width=8)
    assert by_time == ["█▆▃▁    ", "██▆▆▃▃▁▁"]


def test_what_falls_at_the_very_start_does_not_flatten_the_rest(run: MakeRun) -> None:
    (line,), scale = curves([run([99.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0])], "step", width=8)
    assert (line, scale) == ("████▁▁▁▁", "2.00 or more to 1.00")


def test_runs_without_losses_have_no_line(run: MakeRun) -> None:
    assert curves([run([]), run([None, None])], "step") == (["", ""], "")
    assert curves([run([1.0, 1.0])], "step", width=2)[0] == ["▁▁"]


def test_the_table_has_the_spread_over_seeds(
    run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        run([1.0] * 30, seed=1),
        run([1.2] * 30, seed=2),
        run([None], seed=3, outcome="diverged"),
    ]
    show_runs(runs, Console(width=200))
    text = capsys.readouterr().out
    assert "over 2 seeds" in text
    assert "1.1000 ± 0.1414" in text
