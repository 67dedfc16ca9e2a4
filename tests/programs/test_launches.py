"""Programs that start the training instead of doing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import vramcast
from vramcast.errors import WorkloadError
from vramcast.records.phases import PhaseName
from vramcast.workload.launchers import read_line

SMALL = Path(__file__).parent / "small"


@pytest.mark.usefixtures("warm_simulations")
@pytest.mark.parametrize(
    ("kind", "processes"),
    [("subprocess", 1), ("exec", 2), ("torchrun", 1), ("spawn", 2), ("process", 1)],
)
def test_what_a_program_starts_is_run_with_the_environment_that_it_gives(
    kind: str, processes: int
) -> None:
    line = ["python", str(SMALL / "starts.py"), kind, str(SMALL / "loops.py")]
    found = vramcast.predict(line, gpu="h200")
    assert next(p.num_steps for p in found.phases if p.name is PhaseName.TRAIN) >= 2
    assert found.allocator_settings == "expandable_segments:True"
    said = [note for note in found.notes if "of which the first was simulated" in note]
    assert len(said) == (processes > 1)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "first",
    [
        f"#!{sys.executable}\n",
        "#!/usr/bin/env python3\n",
        f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_command_of_an_installed_package_is_its_file(commands: Path, first: str) -> None:
    path = written(commands / "teach", f"{first}import sys\n")
    program = read_line(["teach", "run", "--epochs=3"])
    assert program.argv == [str(path), "run", "--epochs=3"]
    assert program.interpreter is None


def test_a_command_that_is_no_python_is_refused(commands: Path) -> None:
    written(commands / "teach", "#!/bin/sh\nexec true\n")
    with pytest.raises(WorkloadError, match="'teach' is not a launcher"):
        read_line(["teach", "run"])
