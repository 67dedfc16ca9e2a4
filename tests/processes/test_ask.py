"""Whatever a task does to its process: an answer or a typed failure, and nothing left running."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_SECONDS, comes_true

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.processes import ask as module
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed, ask
from vramcast.processes.channel import FIRST, LAST, PART_BYTES, Channel


@pytest.fixture
def mark(new_mark: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    mark = new_mark()
    for name, value in mark.environment.items():
        monkeypatch.setenv(name, value)
    return mark


@pytest.fixture
def server(mark: Any) -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server
    assert mark.none_left()


def run(server: ForkServer, task: str, request: Any = None, **options: Any) -> Any:
    return server.ask(
        f"process_tasks:{task}", request, **{"timeout_seconds": PATIENCE_SECONDS, **options}
    )


def failure(server: ForkServer, task: str, request: Any = None, **options: Any) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        run(server, task, request, **options)
    return caught.value


def test_the_answer_comes_back_and_progress_before_it(server: ForkServer, tmp_path: Path) -> None:
    heard: list[Any] = []
    request = {"a": [1, None, "é"], "b": float("inf")}
    answer = run(server, "echo", request, log=tmp_path / "log", progress=heard.append)
    assert (answer, heard) == ({"request": request}, ["begun"])
    assert (tmp_path / "log").read_text() == "printed\n"
    assert run(server, "large", 5_000_000) == "x" * 5_000_000


def test_calls_of_a_task_take_no_memory_from_the_system_each(server: ForkServer) -> None:
    assert run(server, "most_faults_of_calls", 200) < 100


def test_a_task_runs_where_it_was_asked_with_the_environment_of_that_moment(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKED", "now")
    assert run(server, "where") == [str(tmp_path), "now", ["vramcast"]]


def test_many_tasks_run_at_the_same_time(server: ForkServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: run(server, "echo", n), range(24)))
    assert answers == [{"request": n} for n in range(24)]


@pytest.mark.parametrize("task", ["writes_everywhere", "forks_and_falls_through"])
def test_nothing_but_the_asked_process_can_answer(server: ForkServer, task: str) -> None:
    assert run(server, task) == "real"


def test_what_a_dead_process_left_of_a_message_is_not_joined_with_the_next_one() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver, sender, secret = Channel(ours, b"s" * 16), Channel(theirs, b"s" * 16), b"s" * 16
    theirs.send(secret + bytes([FIRST]) + b'{"answer": "torn')
    sender.send(ended=-9)
    theirs.send(b"x" * 16 + bytes([FIRST | LAST]) + b'{"answer": "forged"}')
    theirs.send(secret)
    sender.send(progress="y" * (2 * PART_BYTES))
    heard = [receiver.receive() for _ in range(7)]
    assert [message for message in heard if message] == [
        {"ended": -9},
        {"progress": "y" * (2 * PART_BYTES)},
    ]
    theirs.close()
    assert receiver.receive() is None
    ours.close()


def test_errors_of_vramcast_keep_their_class_advice_and_exit_code(server: ForkServer) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        run(server, "refuses")
    assert (caught.value.message, caught.value.advice) == ("No abacus.", "Buy one.")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        (("signal", signal.SIGKILL), FailureKind.KILLED, "SIGKILL; the kernel does that when"),
        (("signal", signal.SIGSEGV), FailureKind.KILLED, "SIGSEGV."),
        (("signal", 40), FailureKind.KILLED, "signal 40"),
        (("exit", 0), FailureKind.EXITED, "exit code 0"),
        (("exit", "a word"), FailureKind.EXITED, "a word"),
        (("_exit", 7), FailureKind.EXITED, "exit code 7"),
    ],
)
def test_a_process_that_ends_without_an_answer_is_told_by_how_it_ended(
    server: ForkServer, how: tuple[str, Any], kind: FailureKind, words: str
) -> None:
    failed = failure(server, "ends", how)
    assert failed.kind is kind
    assert words in failed.message and "last words" in failed.printed


def test_an_exception_that_is_not_vramcasts_is_a_crash(server: ForkServer) -> None:
    failed = failure(server, "raises")
    assert failed.kind is FailureKind.CRASHED
    assert "ValueError: no such luck" in failed.what and "process_tasks.py" in failed.printed


@pytest.mark.parametrize("what", ["long", "not text", "mute"])
def test_whatever_is_raised_can_be_shown(server: ForkServer, what: str) -> None:
    failed = failure(server, "raises", what)
    with pytest.raises(EnvironmentProblem) as caught:
        run(server, "refuses", "\x1b[31m")
    for message in (failed.message, caught.value.message):
        assert len(message) < 20_000 and all(c.isprintable() or c in "\n\t" for c in message)


def test_a_message_that_was_cut_says_how_much_is_left_out_and_where_the_whole_is(
    server: ForkServer, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    message = failure(server, "raises", "long", log=log).what
    assert f"characters left out; all are in {log}]" in message
    assert log.read_text().count("x" * 5_000_000) >= 1
    assert re.search(r"\[4,992,\d+ characters left out\]", failure(server, "raises", "long").what)


def test_a_pipe_in_place_of_the_log_is_refused(server: ForkServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(UsageError, match="not a regular file"):
        run(server, "echo", log=tmp_path / "log")


def test_a_task_is_ended_at_its_time_limit_or_when_it_is_to_stop(
    server: ForkServer, mark: Any
) -> None:
    assert failure(server, "waits", timeout_seconds=0.3).kind is FailureKind.TIMEOUT
    stop = threading.Event()
    failed = failure(server, "waits", progress=lambda _: stop.set(), stop=stop.is_set)
    assert failed.kind is FailureKind.STOPPED
    assert mark.only_the_server()


@pytest.mark.parametrize("ending", ["answers", "is stopped", "kills its guard"])
def test_what_a_task_has_started_ends_with_it_in_whatever_session(
    server: ForkServer, mark: Any, ending: str
) -> None:
    has_begun = threading.Event()
    options = {"progress": lambda _: has_begun.set()}
    if ending == "answers":
        run(server, "leaves_children", **options)
    elif ending == "is stopped":
        failed = failure(server, "leaves_children", "waits", stop=has_begun.is_set, **options)
        assert failed.kind is FailureKind.STOPPED
    else:
        failed = failure(server, "leaves_children", ending, **options)
        assert failed.kind is FailureKind.KILLED
    assert has_begun.is_set()
    assert mark.only_the_server()
    assert run(server, "echo", 1) == {"request": 1}


def test_an_interruption_ends_the_task_before_it_is_raised(server: ForkServer, mark: Any) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(server, "leaves_children", "waits", progress=interrupt)
    assert mark.only_the_server()


def test_what_was_told_before_an_interruption_is_heard(server: ForkServer, tmp_path: Path) -> None:
    heard, told = [], tmp_path / "told"

    def hear(number: int) -> None:
        heard.append(number)
        if number == 1:
            assert comes_true(told.exists)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(server, "tells_thrice", str(told), progress=hear)
    assert heard == [1, 2, 3]


def test_a_guard_that_no_longer_answers_is_given_up(
    server: ForkServer, mark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.5)
    is_stopped = tmp_path / "stopped"
    failed = failure(server, "stops_its_guard", str(is_stopped), stop=is_stopped.exists)
    assert failed.kind is FailureKind.STOPPED
    assert mark.none_left()
    assert run(server, "echo", 1) == {"request": 1}


def test_a_server_that_died_is_replaced_without_a_word(server: ForkServer, mark: Any) -> None:
    run(server, "echo", 1)
    assert mark.only_the_server()
    os.kill(*mark.running(), signal.SIGKILL)
    assert mark.none_left()
    assert run(server, "echo", 2) == {"request": 2}


def test_programs_that_user_code_starts_have_no_descriptor_of_ours(server: ForkServer) -> None:
    assert run(server, "lists_descriptors") == ["0", "1", "2", "3"]  # 3 is ls's own


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_a_request_that_is_no_json_is_one_message_and_starts_nothing(
    server: ForkServer, mark: Any, value: object
) -> None:
    with pytest.raises(UsageError, match=f"knob.*{type(value).__name__}"):
        run(server, "echo", {"knobs": {"width": value}})
    assert mark.running() == []


def test_what_cannot_be_imported_beforehand_is_said_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ForkServer(preload=["no_such_module"]) as server:
        failed = failure(server, "echo")
    assert failed.kind is FailureKind.NOT_STARTED and "no_such_module" in failed.message
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(TaskFailed, match="/nowhere/python"):
        ask("process_tasks:echo", 1, timeout_seconds=PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("in_thread", [False, True])
def test_everything_ends_when_whoever_asked_is_killed(
    mark: Any, tmp_path: Path, number: signal.Signals, in_thread: bool
) -> None:
    """Also when a fork of the asking program, which holds all of its descriptors, lives on."""
    call = (
        "ask('process_tasks:leaves_children', 'waits', timeout_seconds=600, "
        "progress=lambda _: (os.fork() or time.sleep(600), open('begun', 'w')))"
    )
    code = "import os, time, threading\nfrom vramcast.processes.ask import ask\n"
    code += f"call = lambda: {call}\n"
    code += "threading.Thread(target=call).start()\n" if in_thread else "call()\n"
    path = os.pathsep.join(sys.path)
    asking = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    assert comes_true((tmp_path / "begun").exists)
    assert mark.at_least(6), "the test would pass for nothing"
    asking.send_signal(number)
    asking.wait()
    # the fork of the asking program, which is not ours to end, is the one that is left
    assert mark.none_left(but=1)
    assert len(mark.running()) == 1
