"""A server that is kept: who may use it, what it keeps, when it ends, and what happens then."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import vramcast
from waiting import PATIENCE_SECONDS, comes_true

import vramcast as api
from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.processes import imported, kept
from vramcast.processes.ask import ForkServer
from vramcast.processes.kept import KeptServer

GPT = str(Path(__file__).parents[2] / "examples" / "gpt.py")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the sockets."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("VRAMCAST_SERVER", "use")
    yield runtime / "vramcast"
    for path in kept.servers():
        kept.stop(path)
    assert kept.servers() == []


def server(**options: Any) -> KeptServer:
    """One that imports no torch."""
    return KeptServer([], {}, **{"idle_seconds": 600.0, **options})


def run(server: ForkServer, task: str, request: Any = None) -> Any:
    return server.ask(f"process_tasks:{task}", request, timeout_seconds=PATIENCE_SECONDS)


def questions() -> int:
    told = [kept.status(path) or {} for path in kept.servers()]
    return sum(one["num_questions"] for one in told)


def test_the_next_command_finds_the_server_and_no_trace_of_what_ran_before(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as first:
        assert run(first, "remembers", "secret")[0] is None
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    try:
        with server(idle_seconds=None) as second:
            monkeypatch.setenv("COLUMNS", "77")
            assert run(second, "remembers", "more") == [None, str(tmp_path), 0o027, None]
    finally:
        os.umask(before)
    assert questions() == 2


def test_only_its_user_can_reach_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as asked:
        run(asked, "echo")
    (path,) = kept.servers()
    assert (place.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    with monkeypatch.context() as patch:
        patch.setattr(kept, "peer", lambda link: (1, os.getuid() + 1))
        assert kept.connect(path) is None
    place.chmod(0o755)
    assert kept.connect(path) is None and kept.connect_or_start([], {}, 60.0) is None
    place.chmod(0o700)


def test_a_folder_that_is_a_link_is_not_used(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "elsewhere")
    with server() as asked:
        assert run(asked, "echo", 1) == {"request": 1}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_another_environment_has_another_server(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = kept.socket_path([], {})
    monkeypatch.setenv("SHLVL", "7")
    assert kept.socket_path([], {}) == here
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other")
    assert kept.socket_path([], {}) != here
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.setattr("sys.executable", "/usr/bin/another")
    assert kept.socket_path([], {}) != here


def test_a_library_that_was_changed_is_not_served_from_memory(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "a_library.py"
    library.write_text("VERSION = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with KeptServer(["a_library"], {}, idle_seconds=600.0) as asked:
        assert run(asked, "says_version") == 1
    library.write_text("VERSION = 22\n")
    with KeptServer(["a_library"], {}) as asked:
        assert run(asked, "says_version") == 22
    assert comes_true(lambda: kept.servers() == [])


def test_where_the_server_dies_a_fresh_process_answers(place: Path, tmp_path: Path) -> None:
    with server() as asked:
        answer = run(asked, "kills_its_server", str(tmp_path / "killed"))
        assert answer == "answered by a fresh process"
        assert run(asked, "echo", 1) == {"request": 1}
    with server() as asked:
        assert run(asked, "echo", 2) == {"request": 2}
    assert questions() == 1


def test_what_a_command_asked_ends_with_the_command(place: Path) -> None:
    with server() as asked:
        task = "process_tasks:tells_its_process"
        news = asked.follow(task, None, timeout_seconds=PATIENCE_SECONDS)
        process = Path(f"/proc/{next(news)}")
        assert process.exists()
        news.close()
        assert comes_true(lambda: not process.exists())
        assert run(asked, "echo", 1) == {"request": 1}
    assert questions() == 2


def test_it_ends_by_itself(place: Path) -> None:
    with server(idle_seconds=0.01) as asked:
        assert run(asked, "echo", 1) == {"request": 1}
        assert len(kept.servers()) == 1
    assert comes_true(lambda: kept.servers() == [])


def test_a_socket_that_nobody_serves_any_more_is_replaced(place: Path) -> None:
    place.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        with kept.address_of(kept.socket_path([], {})) as address:
            dead.bind(address)
    with server() as asked:
        assert run(asked, "echo", 1) == {"request": 1}
    assert questions() == 1


def test_a_prediction_of_the_server_is_that_of_a_fresh_process_to_the_byte(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ["seq_len=64", "width=64", "depth=2", "heads=2", "vocabulary=512"]
    command = ["predict", GPT, *sizes, "--gpu", "rtx-4090", "--json"]
    none = vramcast("server", "status")
    assert (none.returncode, none.stdout, none.stderr) == (3, "", "No server runs.\n")
    assert vramcast("server", "start", "--minutes", "5").returncode == 0
    served = [json.loads(vramcast(*command).stdout) for _ in range(2)]
    told = json.loads(vramcast("server", "status", "--json").stdout)["servers"]
    assert [(one["num_questions"], one["serves_this_environment"]) for one in told] == [(2, True)]
    assert vramcast("server", "stop").stdout.startswith("Stopped: process")
    monkeypatch.setenv("VRAMCAST_SERVER", "off")
    fresh = json.loads(vramcast(*command).stdout)
    for one in (fresh, *served):
        assert one.pop("seconds") > 0
    assert served == [fresh, fresh]


def test_wrong_actions_and_times_are_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMCAST_SERVER", "kepp")
    wrong = vramcast("predict", GPT, "--gpu", "rtx-4090")
    assert wrong.returncode == 2 and "VRAMCAST_SERVER is 'kepp'" in wrong.stderr
    with pytest.raises(UsageError, match="no `server restart`"):
        api.server("restart")
    for minutes in (0, -1, float("nan"), 1e9):
        with pytest.raises(UsageError, match="--minutes"):
            api.server("start", minutes=minutes)


def test_installed_libraries_of_a_task_are_there_when_the_next_one_begins(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # for the function that imports them, outside any task
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    def uses(server: ForkServer, **request: Any) -> Any:
        family = {"name": "yaml", "task": "process_tasks:import_libraries", "request": None}
        task = "process_tasks:uses_a_library"
        return server.ask(task, request, timeout_seconds=PATIENCE_SECONDS, family=family)

    with server() as asked:
        was_there, installed = uses(asked)
        assert not was_there
        assert comes_true(lambda: uses(asked) == [True, installed])
        # a task of another family has none of it
        assert run(asked, "uses_a_library", {}) == [False, installed]
    # A task that might have imported something else is asked again of a fresh process.
    (tmp_path / "yaml.py").write_text("")
    with server() as asked:
        assert uses(asked, folder=str(tmp_path)) == [False, str(tmp_path)]
    with server() as asked:
        assert uses(asked, variable=True) == [False, installed]
    with server() as asked:
        assert uses(asked) == [True, installed]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"modules": [1], "variables": {}}', b"[" * 100_000, b'{"modules": []}']
)
def test_what_user_code_writes_into_the_note_of_its_imports_is_no_note(text: bytes) -> None:
    file = os.memfd_create("note")
    os.write(file, text)
    assert imported.read_note(file) is None
    os.close(file)


def test_where_the_device_is_not_compiled_yet_that_comes_first(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot load it would be kept without torch."""
    happened: list[str] = []
    monkeypatch.setattr(
        "vramcast.predicting.server.compile_device", lambda progress: happened.append("compiled")
    )
    monkeypatch.setattr(kept, "connect_or_start", lambda *given: happened.append("started"))
    with pytest.raises(EnvironmentProblem, match="cannot listen"):
        api.server("start")
    assert happened == ["compiled", "started"]
