"""Whatever a workload's file does at import, the answer comes and nothing is left running."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import comes_true

import vramcast
from vramcast.errors import WorkloadError
from vramcast.probing.trial import Trial
from vramcast.processes import ask
from vramcast.tuning.inspection import inspect_workload

BUILD = "\ndef build(*, width: int = 3): ...\n"
STARTS_ANOTHER = (
    "import subprocess\nopen('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
)
FORKS = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)\n"
WAITS = (
    "import os, time\nopen('new', 'w').write(str(os.getpid()))\n"
    "os.rename('new', 'pid')\ntime.sleep(600)\n"
)
PRINTS_BYTES = "import os\nos.write(1, b'\\xff\\n')\n"


def inspect(folder: Path, code: str, timeout_seconds: float = 300.0) -> dict[str, Any]:
    file = folder / "work.py"
    file.write_text(code + BUILD)
    trial = Trial(workload=f"{file}:build")
    return inspect_workload(trial, [], timeout_seconds=timeout_seconds)[0]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_a_workload_starts_or_prints_at_import_does_not_disturb_the_answer(
    tmp_path: Path,
) -> None:
    in_force = inspect(tmp_path, STARTS_ANOTHER + FORKS + PRINTS_BYTES)
    assert in_force == {"width": 3}
    assert comes_true(lambda: not is_running(int((tmp_path / "pid").read_text())))


def test_a_name_that_only_this_process_has_registered_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.workload.reference._registered", {})
    (tmp_path / "registered_here.py").write_text(BUILD)
    vramcast.register("named-here", "registered_here:build")
    in_force, _ = inspect_workload(Trial(workload="named-here", knobs={"width": 5}), [])
    assert in_force == {"width": 5}


def test_a_file_that_prints_bytes_and_gives_up_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"could not be imported.\n.*exit code 3.*\n\ufffd"):
        inspect(tmp_path, PRINTS_BYTES + "os._exit(3)\n")


def test_a_file_that_waits_is_given_what_there_is_of_the_budget_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of it passes when the file waits."""

    def hour_passes() -> float:
        return time.monotonic() + 3600.0 * (tmp_path / "pid").exists()

    monkeypatch.setattr(ask, "time", SimpleNamespace(monotonic=hour_passes))
    with pytest.raises(WorkloadError, match=r"within 200 s.") as caught:
        inspect(tmp_path, WAITS, 200.0)
    assert "--budget" in caught.value.advice
    assert not is_running(int((tmp_path / "pid").read_text()))
