"""Sweeps: every model has about the same number of parameters, and those of the documents are
found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from vramcast.benching.bench import bench
from vramcast.benching.models import swept_models
from vramcast.errors import UsageError
from vramcast.records.bench import BenchTrial, TrainedRun, tokens_note
from vramcast_zoo.sizing import FAMILIES


def test_the_dimensions_of_document_002_are_its_own_models() -> None:
    """Their rank is solved for at 50 M parameters."""
    found = swept_models(("e5", {}), "dim=768,1024,1536,2048,3072,4096,6144", 50_000_000)
    names = [
        "e5-d768-r539",
        "e5-d1024-r404",
        "e5-d1536-r270",
        "e5-d2048-r200",
        "e5-d3072-r133",
        "e5-d4096-r99",
        "e5-d6144-r65",
    ]
    assert [name for name, _ in found] == names


def test_depth_is_solved_for_where_width_is_swept_and_the_other_way_round() -> None:
    """The document's pair is 4.5 % apart in parameters; these are 0.4 %."""
    made = "vramcast_zoo.e1:make_model"
    wide_and_deep = swept_models(("e1-d512", {"recurrence": "plain"}), "dim=512,1024", 27_000_000)
    assert wide_and_deep == [
        (made, {"dim": "512", "depth": "20", "expansion": "1.0", "recurrence": "plain"}),
        (made, {"dim": "1024", "depth": "5", "expansion": "1.0", "recurrence": "plain"}),
    ]
    by_depth = swept_models(("e1", {}), "depth=5,20", 27_000_000)
    counts = [
        FAMILIES["e1"].count(dim=int(knobs["dim"]), depth=int(knobs["depth"]), expansion=1.0)
        for _, knobs in by_depth
    ]
    assert all(abs(count / 27_000_000 - 1) < 0.02 for count in counts)


def test_without_a_budget_it_is_that_of_the_model() -> None:
    swept = swept_models(("e1-50m", {}), "dim=256,512")
    assert swept[1] == ("e1-50m", {})
    assert swept[0][1]["expansion"] == "1.5"  # what is not swept stays
    shallow = swept_models(("e5-d768-r539", {"depth": "3"}), "dim=32,48", 20_000)
    assert [knobs["depth"] for _, knobs in shallow] == ["3", "3"]
    assert int(shallow[0][1]["rank"]) > int(shallow[1][1]["rank"])


@pytest.mark.parametrize(
    ("model", "sweep", "reason"),
    [
        (("gpt.py:build", {}), "dim=1,2", "does not know the sizes"),
        (("e5", {}), "dim=512,768", "rank=.* above dim=512"),
        (("e5", {}), "width=512,768", "has no size 'width'"),
        (("e5", {"dim": "512"}), "dim=768,1024", "swept and given"),
        (("e5", {}), "dim=768", "two or more different values"),
        (("e5", {}), "dim=768,768", "two or more different values"),
        (("e5", {}), "dim=768,wide", "expected a number"),
        (("e5", {}), "dim", "names no size and values"),
        (("e5", {"rank": "10", "depth": "3"}), "dim=768,1024", "nothing is left to solve for"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(
    model: tuple[str, dict[str, str]], sweep: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        swept_models(model, sweep, 50_000_000)


def test_a_sweep_is_of_one_model_and_a_budget_is_of_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one model"):
        bench(["e5", "e1"], out=tmp_path / "x", sweep="dim=768,1024")
    with pytest.raises(UsageError, match="--params is the budget"):
        bench(["e5"], out=tmp_path / "x", params="50M")


def test_runs_that_saw_different_numbers_of_tokens_are_warned_of(make_trial: object) -> None:
    def run(steps: int) -> TrainedRun:
        trial: BenchTrial = make_trial()  # type: ignore[operator]
        return TrainedRun(trial=trial, outcome="ok", environment={}, losses=[1.0] * steps)

    assert tokens_note([run(30), run(30)]) is None
    assert "1,280 to 1,920" in (tokens_note([run(30), run(20)]) or "")
