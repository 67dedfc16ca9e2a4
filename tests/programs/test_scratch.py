"""Folders of killed commands do not stay."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from vramcast.programs.scratch import PREFIX, scratch_folder


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
