"""Folders of killed commands do not stay."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from vramcast.benching.on_ray import _train
from vramcast.errors import UsageError
from vramcast.programs.scratch import PREFIX, scratch_folder, set_aside


def test_the_folder_of_a_killed_command_goes_with_the_next_and_that_of_a_running_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"{PREFIX}{ended.pid}-abc"
    of_another = tmp_path / f"{PREFIX}{os.getppid()}-def"
    unknown = tmp_path / f"{PREFIX}of-mine"
    for folder in (left, of_another, unknown):
        folder.mkdir()
        (folder / "weights").write_text("")
    with scratch_folder() as made:
        assert made.is_dir() and made.parent == tmp_path
        assert not left.exists()
    assert not made.exists()
    assert of_another.exists() and unknown.exists()


def test_a_file_that_was_set_aside_is_put_back_where_the_program_was_killed(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_text("weights of days")
    with scratch_folder() as folder:
        set_aside(str(weights), folder)
        weights.write_text("nothing")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["weights of days"]


def test_what_a_killed_worker_of_ray_has_left_goes_with_the_next_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"{PREFIX}{ended.pid}-abc").mkdir()
    with pytest.raises(UsageError):
        next(_train({"folder": "absent", "data_path": "data", "trial": {}}, b"data"))
    assert [*tmp_path.iterdir()] == []
