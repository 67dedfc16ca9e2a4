"""A run's folder is whole at every moment, has one writer, and is not written over unasked."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from vramcast.errors import EnvironmentProblem, UsageError, WorkloadError
from vramcast.probing import probe as api
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import measurement_from
from vramcast.probing.probe import NotSaved, run_trial
from vramcast.probing.run_folder import RunFolder, read_measurement, steps_csv
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Device, Measurement, Outcome
from vramcast.records.store import unfinished_name

BEFORE = {"run_cmd.txt", "env.json", "metrics.json"}
AFTER = BEFORE | {"metrics.csv", "summary.md", "worker.log"}
STEPS = {
    "step_seconds": [0.5, 0.25],
    "warmup_seconds": [2.0],
    "losses": [3.0, None, float("nan")],
}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    (tmp_path / "work.py").write_text("")
    return Trial(workload=f"{tmp_path}/work.py:build", device=Device.CPU, knobs={"batch_size": 4})


def measured(trial: Trial, **facts: Any) -> Measurement:
    return measurement_from(trial, Facts(**{**STEPS, "outcome": Outcome.OK, **facts}))


def run(trial: Trial, folder: RunFolder, command: str) -> Measurement:
    with patch("sys.argv", ["vramcast", *command.split()]):
        return run_trial(trial, folder)


class FakeProber:
    """Instead of real processes: tells two steps, then does what the test wants."""

    end: Any = None
    seen: set[str] = set()

    def __enter__(self) -> FakeProber:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(
        self, trial: Trial, log: Path | None, progress: Any, on_output: Any = None
    ) -> Measurement:
        assert log is not None
        FakeProber.seen = set(os.listdir(log.parent))
        assert read_measurement(log.parent).outcome == "unfinished"
        log.write_text("printed")
        progress(Facts(**STEPS))
        if FakeProber.end is not None:
            raise FakeProber.end
        return measured(trial)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProber]:
    monkeypatch.setattr(api, "Prober", FakeProber)
    monkeypatch.setattr(FakeProber, "end", None)
    return FakeProber


def test_what_was_asked_is_there_before_the_run_and_what_came_of_it_after(
    tmp_path: Path, trial: Trial, fake: type[FakeProber]
) -> None:
    folder = tmp_path / "run"
    measurement = run(trial, RunFolder(folder), "probe it")
    assert fake.seen == BEFORE
    assert set(os.listdir(folder)) == AFTER
    assert (folder / "run_cmd.txt").read_text() == "vramcast probe it\n"
    assert read_measurement(folder).to_dict() == measurement.to_dict()
    environment = json.loads((folder / "env.json").read_text())
    assert {"gpus", "git", "variables", "torch_version", "measured_with"} <= set(environment)


def test_a_folder_with_a_run_is_only_used_again_with_force_and_keeps_nothing_of_the_old(
    tmp_path: Path, trial: Trial, fake: type[FakeProber]
) -> None:
    folder = tmp_path / "run"
    run(trial, RunFolder(folder), "first")
    (folder / "snapshot.pickle").write_text("of the first")
    (folder / unfinished_name()).write_text("half of a file: its run was killed")
    (folder / "mine.txt").write_text("not a file of a run")
    with pytest.raises(UsageError, match="--force|already"):
        run(trial, RunFolder(folder), "second")
    run(trial, RunFolder(folder, force=True), "second")
    assert fake.seen - {".previous"} == BEFORE | {"mine.txt"}, (
        "a summary of the first would be taken for the second's"
    )
    assert set(os.listdir(folder)) == AFTER | {"mine.txt"}
    assert (folder / "run_cmd.txt").read_text() == "vramcast second\n"


def test_a_record_that_force_put_aside_outlives_a_run_that_was_killed(
    tmp_path: Path, trial: Trial, fake: type[FakeProber]
) -> None:
    folder = tmp_path / "run"
    run(trial, RunFolder(folder), "first")
    RunFolder(folder, force=True).before(trial)  # and then it is killed
    (folder / "trace.json").mkdir()
    wrong = RunFolder(folder, force=True)
    wrong.before(trial)
    wrong.discard()
    assert set(os.listdir(folder)) == AFTER
    assert (folder / "run_cmd.txt").read_text() == "vramcast first\n"
    RunFolder(folder, force=True).before(trial)  # killed again
    run(trial, RunFolder(folder, force=True), "second")
    assert set(os.listdir(folder)) == AFTER
    assert (folder / "run_cmd.txt").read_text() == "vramcast second\n"


def test_what_is_in_the_way_of_a_probes_folder_is_said(tmp_path: Path, trial: Trial) -> None:
    (tmp_path / ".previous").write_text("a file of somebody")
    (tmp_path / "metrics.json").write_text("")
    with pytest.raises(UsageError, match=f"{tmp_path}"):
        RunFolder(tmp_path, force=True).before(trial)


def test_of_two_probes_with_one_folder_one_runs_and_the_other_says_who_has_it(
    tmp_path: Path, trial: Trial, fake: type[FakeProber], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    first, second = RunFolder(folder), RunFolder(folder)  # both found it empty

    def first_run(self: FakeProber, trial: Trial, log: Path, progress: Any, *_: Any) -> Measurement:
        with pytest.raises(UsageError, match=f"process {os.getpid()}"):
            run(trial, second, "second")
        return measured(trial)

    monkeypatch.setattr(fake, "run", first_run)
    run(trial, first, "first")
    with pytest.raises(UsageError, match="already holds a run"):
        run(trial, second, "second")
    assert (folder / "run_cmd.txt").read_text() == "vramcast first\n"
    assert read_measurement(folder).outcome == Outcome.OK


def test_a_wrong_request_leaves_no_folder_and_with_force_the_old_run(
    tmp_path: Path, trial: Trial, fake: type[FakeProber]
) -> None:
    folder = tmp_path / "run"
    fake.end = WorkloadError("no such knob", "correct it")
    with pytest.raises(WorkloadError):
        run(trial, RunFolder(folder), "wrong")
    assert not folder.exists()
    fake.end = None
    run(trial, RunFolder(folder), "right")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    fake.end = WorkloadError("no such knob", "correct it")
    with pytest.raises(WorkloadError):
        run(trial, RunFolder(folder, force=True), "wrong")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_interrupted_run_keeps_its_steps_and_says_unfinished(
    tmp_path: Path, trial: Trial, fake: type[FakeProber]
) -> None:
    fake.end = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(trial, RunFolder(tmp_path / "run"), "it")
    record = read_measurement(tmp_path / "run")
    assert (record.outcome, record.steps_done, record.verdict.stable) == ("unfinished", 2, False)
    assert set(os.listdir(tmp_path / "run")) == AFTER


class Disk:
    """os.fsync as on a disk that is full from the n-th file on."""

    def __init__(self, room_for: int) -> None:
        self.room = room_for

    def __call__(self, _: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("room", range(3))
def test_a_disk_full_before_the_run_is_a_clear_error_and_leaves_no_folder(
    room: int, tmp_path: Path, trial: Trial, fake: type[FakeProber], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", Disk(room))
    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        run(trial, RunFolder(tmp_path / "run"), "it")
    assert not isinstance(caught.value, NotSaved)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("room", range(3, 7))
def test_a_disk_full_after_the_run_loses_no_measurement_and_leaves_no_half_file(
    room: int, tmp_path: Path, trial: Trial, fake: type[FakeProber], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", Disk(room))
    with pytest.raises(NotSaved) as caught:
        run(trial, RunFolder(tmp_path / "run"), "it")
    assert caught.value.measurement.steps_done == 2
    assert caught.value.exit_code == 1
    assert read_measurement(tmp_path / "run").outcome == "unfinished"
    assert set(os.listdir(tmp_path / "run")) <= AFTER


def test_every_step_has_its_line(trial: Trial) -> None:
    rows = list(csv.DictReader(io.StringIO(steps_csv(measured(trial)))))
    assert [tuple(row.values()) for row in rows] == [
        ("1", "warm-up", "2.0", "3.0"),
        ("2", "measure", "0.5", ""),
        ("3", "measure", "0.25", "nan"),
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"step_seconds": [], "losses": [3.0]},
        {"step_seconds": [], "warmup_seconds": [], "losses": []},
    ],
)
def test_a_run_that_broke_off_has_the_lines_of_its_steps(
    trial: Trial, facts: dict[str, Any]
) -> None:
    assert len(steps_csv(measured(trial, **facts)).splitlines()) == 1 + len(
        {**STEPS, **facts}["losses"]
    )


HOSTILE = (
    "w|x`y`<script>alert(1)</script>[l](http://e.vil)\\|*b*\n# heading\r\n"
    "| a | b |\x1b[31m.py:build"
)


def summary_of(record: Measurement, folder: Path) -> str:
    RunFolder(folder).after(record)
    return (folder / "summary.md").read_text()


def test_a_hostile_name_is_text_in_the_summary_and_nothing_else(tmp_path: Path) -> None:
    record = measured(
        Trial(workload=HOSTILE, device=Device.CPU, knobs={"a|b": "```\n</table>"}),
        error="```\nout of the block\n````\n# heading",
    )
    text = summary_of(record, tmp_path / "run")
    assert text.count("\n# ") == 1 and "\n# Probe of " in text
    assert not any(part in text for part in ("<script", "</table", "[l]", "\x1b", "\\"))
    assert "&lt;script&gt;" in text
    assert "    out of the block\n    ````\n    # heading" in text, "the error is a block of code"


def test_the_summary_says_what_was_not_judged_and_how_far_a_run_came(
    tmp_path: Path, trial: Trial
) -> None:
    text = summary_of(measured(trial, outcome="crashed", error="boom"), tmp_path / "run")
    assert "- not judged: step_time_explosion (2 steps were measured" in text
    assert "✗ crashed: nan_or_inf, runtime_exception" in text
    assert "boom" in text and "| steps | 2 of " in text
