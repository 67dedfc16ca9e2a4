"""What calibrate, accuracy and simulations that share a server owe to the process layer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vramcast.errors import EnvironmentProblem
from vramcast.predicting import calibrate
from vramcast.processes.ask import ask
from vramcast.processes.progress import Progress, ignore
from vramcast.simulate.runner import shared_server
from vramcast.suites.accuracy import estimates_of_peers

HOSTILE = Path(__file__).with_name("hostile.py")


def asks_instead(monkeypatch: pytest.MonkeyPatch, task: str, **options: Any) -> None:
    def asked(_task: str, keys: list[str], **given: Any) -> Any:
        return ask(task, keys, **{**given, **options})

    monkeypatch.setattr(calibrate, "ask", asked)


def test_a_calibration_does_not_wait_for_what_libraries_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks_instead(monkeypatch, "process_tasks:calibrates")
    heard: list[Progress] = []
    table = calibrate._ask("a task", ["a", "b"], 2, heard.append)
    assert table == {"convolutions": {"a": [1, 2, 3], "b": [1, 2, 3]}}
    assert [(far.done, far.total) for far in heard] == [(0, 2), (1, 2)]


def test_a_calibration_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asks_instead(monkeypatch, "process_tasks:waits", timeout_seconds=0.3)
    with pytest.raises(EnvironmentProblem, match=r"did not end within 0\.3 s"):
        calibrate._ask("a task", ["a"], 1, ignore)


@pytest.mark.long
def test_other_methods_are_asked_without_modules_of_the_users_folder_and_leave_nothing_running(
    tmp_path: Path, new_mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    for name, value in mark.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("raise RuntimeError('not the one you want')\n")
    row: Any = SimpleNamespace(workload=f"{HOSTILE}:leaves_children", knobs={}, line=None)
    estimates = estimates_of_peers(row)
    assert estimates.four_times_parameters.bytes == 0
    assert mark.none_left()


def test_a_server_is_shared_and_waits_for_the_next_simulation_in_the_same_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shared_server() as server, shared_server() as second:
        assert second is server
    with shared_server() as later:
        assert later is server
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    with shared_server() as other:
        assert other is not server
    with shared_server(server) as given:
        assert given is server
