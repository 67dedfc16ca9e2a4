"""What a tune asks of real runs and predictions, with none of them run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invented import run

from vramcast.errors import UsageError
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Device, FailReason, Measurement
from vramcast.simulate import build
from vramcast.tuning.folder import TuneFolder
from vramcast.tuning.runner import BudgetSpent, Runner
from vramcast.tuning.tune import _request
from vramcast.workload.configuration import Configuration


class Simulated(Runner):
    """Every answer says what was asked."""

    def __init__(self, folder: TuneFolder, gpu: str | None = "h200") -> None:
        trial = Trial(workload="gpt2-124m")
        super().__init__(trial, gpu, None, folder, math.inf)  # type: ignore[arg-type]
        self.asked: list[str] = []

    def _simulate(self, question: tuple[Configuration, str | None, int | None], stop: Any) -> str:
        configuration, gpu, _ = question
        answer = f"{configuration.knobs} on {gpu}"
        self.asked.append(answer)
        return answer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TuneFolder]:
    monkeypatch.setattr(build, "build", lambda: None)
    with contextlib.closing(TuneFolder(tmp_path / "run", {}, force=False)) as folder:
        yield folder


def test_equal_configurations_are_simulated_once_and_answered_each_time(folder: TuneFolder) -> None:
    runner = Simulated(folder)
    small, large = Configuration(knobs={"batch_size": 1}), Configuration(knobs={"batch_size": 8})
    wanted = [f"{knobs} on h200" for knobs in (small.knobs, large.knobs, small.knobs)]
    assert runner.predict([small, large, Configuration(knobs={"batch_size": 1})]) == wanted
    assert sorted(runner.asked) == sorted(wanted[:2])
    assert runner.predict([large, small, large]) == [wanted[1], wanted[0], wanted[1]]
    assert len(runner.asked) == 2, "the rest is recorded"


def test_one_configuration_has_an_answer_for_each_gpu(folder: TuneFolder) -> None:
    runner = Simulated(folder, gpu=None)
    one = Configuration(knobs={"batch_size": 1})
    assert runner.predict([one, one], ["h200", "rtx-4090"]) == [
        f"{one.knobs} on h200",
        f"{one.knobs} on rtx-4090",
    ]
    assert runner.predict([one, one]) == ["no GPU was named to predict for"] * 2


class Ended:
    """A prober all of whose runs end in the same way."""

    def __init__(self, measurement: Measurement) -> None:
        self.run = lambda *_: measurement


@pytest.mark.parametrize("stalled", [True, False])
def test_a_run_that_stalls_is_its_own_fault_and_one_that_needs_longer_is_not(
    folder: TuneFolder, stalled: bool
) -> None:
    trial = Trial(workload="w")
    ended = run(outcome="timeout", error="It did not end.")
    reasons = [FailReason.STALL] if stalled else []
    found = replace(ended, verdict=replace(ended.verdict, fail_reasons=reasons))
    runner = Runner(trial, None, Ended(found), folder, budget_seconds=60.0)  # type: ignore[arg-type]
    with contextlib.nullcontext() if stalled else pytest.raises(BudgetSpent):
        assert runner.measure(Configuration()).outcome == "timeout"


def test_a_file_that_was_edited_is_another_workload(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    trial = Trial(workload=f"{file}:build", device=Device.CPU)
    requests = []
    for text in ("def build(): ...", "def build(): ...", "def build(): 1"):
        file.write_text(text)
        requests.append(_request(trial, None, None))
    assert requests[0] == requests[1] != requests[2]


def test_a_folder_that_another_tune_fills_is_not_emptied_by_force(folder: TuneFolder) -> None:
    folder.add_prediction("key", "x")
    with pytest.raises(UsageError, match="is being written by"):
        TuneFolder(folder.path, {}, force=True)
    assert (folder.path / "records.jsonl").exists()


def test_a_tune_that_was_killed_before_its_first_run_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"only": "a"}')
    with contextlib.closing(TuneFolder(tmp_path, {"only": "b"}, force=False)) as folder:
        folder.add_prediction("key", "x")
    with pytest.raises(UsageError, match="holds another tune: not the same only"):
        TuneFolder(tmp_path, {"only": "c"}, force=False)
