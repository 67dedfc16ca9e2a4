"""What a tune takes over from its folder, and what it does again."""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import invented
import pytest

from vramcast.records.store import append_line
from vramcast.tuning.folder import TuneFolder

GOOD = invented.run()
GOOD_TIMES = GOOD.times
assert GOOD_TIMES is not None


@pytest.mark.parametrize(
    "edit",
    [
        {"version": 0},
        {"times": None},
        {"times": {**asdict(GOOD_TIMES), "median_seconds": 0.0}},
        {"times": {**asdict(GOOD_TIMES), "seconds": [-1.0]}},
        {"losses": ["much"]},
        {"knobs": {"batch_size": 10**400}},
    ],
)
def test_a_recorded_run_that_cannot_have_been_is_made_again(
    tmp_path: Path, edit: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    with contextlib.closing(TuneFolder(path, {}, force=False)) as folder:
        append_line(
            path / "records.jsonl",
            {"kind": "run", "key": "k", "measurement": {**GOOD.to_dict(), **edit}},
        )
        folder.add_run("k", GOOD)
    with contextlib.closing(TuneFolder(path, {}, force=False)) as folder:
        assert folder.num_resumed == 1
        assert folder.recorded_run("k") == GOOD
        assert folder.recorded_run("k") is None


def test_runs_that_failed_or_diverged_are_taken_over(tmp_path: Path) -> None:
    runs = [invented.run(outcome="crashed", error="no"), invented.run(losses=[math.inf, None])]
    with contextlib.closing(TuneFolder(tmp_path / "run", {}, force=False)) as folder:
        for run in runs:
            folder.add_run("k", run)
    with contextlib.closing(TuneFolder(tmp_path / "run", {}, force=False)) as folder:
        assert [folder.recorded_run("k"), folder.recorded_run("k")] == runs


def test_a_prediction_of_another_version_is_asked_for_again(tmp_path: Path) -> None:
    path, good = tmp_path / "run", invented.prediction(5)
    with contextlib.closing(TuneFolder(path, {}, force=False)) as folder:
        folder.add_prediction("good", good)
        for key, answer in (
            ("old", {"prediction": {**good.to_dict(), "version": 0}}),
            ("empty", {}),
        ):
            line = {"kind": "prediction", "key": key, "answer": answer}
            append_line(path / "records.jsonl", line)
    with contextlib.closing(TuneFolder(path, {}, force=False)) as folder:
        assert folder.predictions["good"] == good
        assert folder.predictions.keys() == {"good"}
