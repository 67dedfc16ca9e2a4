"""The benchmark of faults, with the errors of a GPU raised on the CPU: no trial harms the next."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "faults"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("run", "workloads"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("run")


@pytest.mark.long
def test_after_every_kind_of_fault_the_next_trial_is_as_before(run: ModuleType) -> None:
    rows = run.probe_faults("cpu", ("ecc", "out of memory", "segmentation fault"))
    assert [(row["outcome"], row["harm"]) for row in rows] == [
        ("crashed", []),
        ("out_of_memory", []),
        ("crashed", []),
    ]


@pytest.mark.long
def test_a_fault_that_is_not_named_right_and_a_trial_that_differs_are_harm(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = iter([("ok", [1.0], 1), ("ok", [2.0], 1)])
    monkeypatch.setattr(run, "sound_run", lambda *_: next(sound))
    monkeypatch.setattr(run, "expected", lambda _: "timeout")
    (row,) = run.probe_faults("cpu", ("ecc",))
    assert len(row["harm"]) == 2
