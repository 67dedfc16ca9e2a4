"""Trained models in the terminal: loss curves as lines of blocks, and the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

from vramcast.records.bench import BenchTrial, TrainedRun
from vramcast.reporting.showing import show


@pytest.fixture
def run(make_trial: Callable[..., BenchTrial]) -> Callable[..., TrainedRun]:
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


def lines_of(text: str) -> list[str]:
    """The blocks of every run, by step and by time, without the space that lines them up."""
    return [line for line in text.splitlines() if "█" in line]


def test_a_faster_model_ends_earlier(run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    losses: list[float | None] = [8.0, 4.0, 2.0, 1.0]
    show([run(losses, 1.0, seed=1), run(losses, 2.0, seed=2)], Console(width=200))
    fast, slow = lines_of(capsys.readouterr().out)
    assert fast.split()[-2:] == ["█▆▃▁", "▇▂"], "by step the same, by time half as long"
    assert slow.split()[-2:] == ["█▆▃▁", "█▆▃▁"]


def test_runs_without_losses_have_no_line(run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run([], outcome="crashed"), run([None, None], seed=2, outcome="diverged")]
    show(runs, Console(width=200))
    assert "Training loss" not in capsys.readouterr().out


def test_the_table_has_the_spread_over_seeds(
    run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        run([1.0] * 30, seed=1),
        run([1.2] * 30, seed=2),
        run([None], seed=3, outcome="diverged"),
    ]
    show(runs, Console(width=200))
    text = capsys.readouterr().out
    assert "over 2 seeds" in text
    assert "1.1000 ± 0.1414" in text
