"""Ask another process: a function runs there, and its answer or a typed failure comes back.

    ask("vramcast.simulate.worker:answer", request, timeout_seconds=300)

A task is a function `task(request, tell) -> answer` of JSON values; `tell` sends progress. Errors
of vramcast are raised here as they were there; any other end is a `TaskFailed`.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Self

from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
from vramcast.processes import lifetime
from vramcast.processes.channel import SECRET_BYTES, Channel, error_from_dict
from vramcast.processes.lifetime import child_environment, restrictions, signal_name
from vramcast.processes.progress import is_of_user
from vramcast.text import printable

START_SECONDS = 120.0
# a killed process gives its GPU memory back within seconds, unless the driver hangs
END_SECONDS = 60.0
OUTPUT_BYTES = 1 << 16


class FailureKind(StrEnum):
    NOT_STARTED = "not started"
    TIMEOUT = "timeout"
    STOPPED = "stopped"
    KILLED = "killed"
    EXITED = "exited"
    CRASHED = "crashed"
    # from a kept server: only a fresh process can answer
    UNSUITED = "unsuited"


class TaskFailed(VramcastError):
    """The process gave no answer. `printed` is the end of what user code printed in it."""

    def __init__(
        self,
        kind: FailureKind,
        what: str,
        printed: str = "",
        *,
        signal: str | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(f"{what}\n{printed}".rstrip(), advice)
        self.kind, self.what, self.printed, self.signal = kind, what, printed, signal


class ForkServer:
    """Runs tasks, each in a fresh process, also several at a time from several threads.

    Once for all of them, the modules in `preload` are imported and its module:functions called.
    `python` is another interpreter than this one, and its flags.
    """

    start_seconds = START_SECONDS

    def __init__(
        self,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: Sequence[str] = (),
    ) -> None:
        self._preload, self._environment = list(preload), dict(environment or {})
        self._python = list(python) or [sys.executable]
        self._is_own_python = self._python[0] == sys.executable
        if not self._is_own_python:
            # it has its own vramcast, and uses nothing of this environment
            self._environment.setdefault("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        self._starting = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._log: IO[bytes] | None = None  # output of the server itself

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the server, which begins to import. A dead server is replaced."""
        with self._starting:
            if not self._is_running():
                self.close()
                self._launch()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        with self._starting:
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            for file in (self._link, self._log):
                if file is not None:
                    file.close()
            self._link = self._process = self._log = None

    def _launch(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = open_log(None)
        arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(self._preload)]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    # -P, so that a random.py in the user's folder does not replace Python's
                    [*self._python, "-P", "-m", "vramcast.processes.server", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=[theirs.fileno()],
                    env=child_environment(**self._environment),
                    start_new_session=True,
                )
            except OSError as problem:
                raise self._not_started(str(problem)) from None
        lifetime.adopt_orphans_of_this_command()

    def _not_started(self, printed: str) -> TaskFailed:
        status = self._process.poll() if self._process else 0
        self.close()
        modules = ", ".join(name.partition(":")[0] for name in self._preload) or "vramcast"
        how = lifetime.ended_by(-status) if status and status < 0 else "did not start"
        return TaskFailed(
            FailureKind.NOT_STARTED,
            f"The process that runs workloads {how}.",
            printed,
            advice=f"Make `{self._python[0]} -c 'import {modules}'` work first.",
        )

    def ask(
        self,
        task: str,
        request: Any,
        *,
        progress: Callable[[Any], None] = lambda _: None,
        **options: Any,
    ) -> Any:
        """The answer of a task. The options are those of `follow`."""
        following = self.follow(task, request, overheard=progress, **options)
        with contextlib.closing(following) as news:
            while True:
                try:
                    progress(next(news))
                except StopIteration as end:
                    return end.value

    def follow(
        self,
        task: str,
        request: Any,
        *,
        timeout_seconds: float,
        log: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
        on_output: Callable[[bytes], None] | None = None,
        family: dict[str, Any] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        overheard: Callable[[Any], None] = lambda _: None,
    ) -> Generator[Any, None, Any]:
        """Generates the task's progress and returns the answer. Closing it ends the task;
        `overheard` then gets the progress that was not yet generated.

        User code prints into `log`, and `on_output` gets the output soon after. `stop` is called
        often, and ends the task if true. After one task of a `family`, a kept server imports the
        same libraries for the next one, by the family's function `task(request, names)`.
        `meanwhile` is called as soon as the task was sent.
        """
        secret = secrets.token_bytes(SECRET_BYTES)
        order = _encoded(
            task=task,
            request=request,
            secret=secret.hex(),
            folder=os.getcwd(),
            log=None if log is None else str(log),
            path=[os.path.abspath(folder) for folder in sys.path] if self._is_own_python else [],
            environment=child_environment(**self._environment),
            family=family,
            **restrictions(),
        )
        with open_log(log) as printed:
            channel = Channel(self._sent(order, printed.fileno()), secret)
            meanwhile()
            output = _Output(printed.fileno(), on_output)
            seconds = self.start_seconds, timeout_seconds
            running = _Running(channel, *seconds, stop, output.pass_on, self._has_died)
            try:
                yield from running.news()
            finally:
                if not running.end():
                    self.close()
                channel.close()
                output.pass_on()
                for news in running.unheard:
                    overheard(news)
            if running.never_started:
                raise self._not_started(tail(self._log) if self._log is not None else "")
            return running.answer("" if on_output else tail(printed))

    def _has_died(self) -> bool:
        link = self._link
        if link is None:
            return False
        try:
            # the server never writes here, so anything that comes is the end
            return link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError as problem:
            return not isinstance(problem, BlockingIOError)

    def _sent(self, order: bytes, log: int) -> socket.socket:
        self.start()
        assert self._link is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(os.memfd_create("order"), "wb", buffering=0) as file:
            file.write(order)
            file.seek(0)
            # the server may have just died: the end of the connection will be noticed
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._link, [b"!"], [file.fileno(), theirs.fileno(), log])
        return ours


class _Output:
    def __init__(self, log: int, receive: Callable[[bytes], None] | None) -> None:
        self._log, self._receive, self._position = log, receive, 0

    def pass_on(self) -> None:
        while self._receive and (data := os.pread(self._log, OUTPUT_BYTES, self._position)):
            self._position += len(data)
            self._receive(data)


class _Running:
    def __init__(
        self,
        channel: Channel,
        start_seconds: float,
        timeout_seconds: float,
        stop: Callable[[], bool],
        listen: Callable[[], None],
        server_died: Callable[[], bool],
    ) -> None:
        self._channel, self._timeout_seconds, self._stop = channel, timeout_seconds, stop
        self._listen, self._server_died = listen, server_died
        self._deadline = time.monotonic() + start_seconds
        self._is_started = self._has_ended = False
        self._status: int | None = None
        self._killed_for: FailureKind | None = None
        self._last: dict[str, Any] = {}
        self.unheard: list[Any] = []

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    @property
    def never_started(self) -> bool:
        return not self._is_started and self._killed_for is not FailureKind.STOPPED

    def news(self) -> Generator[Any, None, None]:
        """The progress, until the task has ended or cannot be ended."""
        while not self._has_ended:
            message = self._hear()
            self._listen()
            if "progress" in message:
                yield message["progress"]
            if self._killed_for is not None:
                if self._is_late or not self._is_started:
                    return
            # user code may have killed every process that would report its end
            elif not message and self._is_started and self._server_died():
                self._killed_for = FailureKind.KILLED
                self._hang_up()
                return
            elif self._is_late or self._stop():
                self._killed_for = FailureKind.TIMEOUT if self._is_late else FailureKind.STOPPED
                self._hang_up()

    def _hang_up(self) -> None:
        self._channel.hang_up()
        self._deadline = time.monotonic() + END_SECONDS

    def _hear(self) -> dict[str, Any]:
        message = self._channel.receive()
        if message is None:
            self._has_ended = True
            return {}
        if "started" in message:
            self._is_started = True
            self._deadline = time.monotonic() + self._timeout_seconds
        elif "ended" in message:
            self._has_ended, self._status = True, message["ended"]
        elif message and "progress" not in message:
            self._last = message
        return message

    def end(self) -> bool:
        """Ends the task, and says whether nothing is left of it."""
        if self._killed_for is None:  # interrupted from outside, or at its end already
            self._hang_up()
            while self._is_started and not self._has_ended and not self._is_late:
                if "progress" in (message := self._hear()):
                    self.unheard.append(message["progress"])
        return self._has_ended or not self._is_started

    def answer(self, printed: str) -> Any:
        if "answer" in self._last:
            return self._last["answer"]
        if "error" in self._last:
            error = error_from_dict(self._last["error"])
            if printed and isinstance(error, WorkloadError):
                error.message += f"\nBefore that it printed:\n{printed}"
            raise error
        if "again" in self._last:
            raise TaskFailed(FailureKind.UNSUITED, "The task needs a fresh process.")
        signalled = None
        if self._killed_for is not None:
            kind, how = self._killed_for, "was stopped"
            if kind is FailureKind.TIMEOUT:
                how = f"did not end within {self._timeout_seconds:g} s"
        elif "crashed" in self._last:
            kind, how = FailureKind.CRASHED, f"failed: {self._last['crashed']}"
        elif self._status is None:
            kind, how = FailureKind.KILLED, ""
        elif self._status >= 0:
            kind = FailureKind.EXITED
            how = f"ended with exit code {self._status} and gave no answer"
        else:
            kind, signalled = FailureKind.KILLED, signal_name(-self._status)
            how = lifetime.ended_by(-self._status)
        if kind is FailureKind.KILLED and signalled is None:
            how = "was ended together with the one that watched it"
        raise TaskFailed(kind, f"The process {how}.", printed, signal=signalled)


def ask(
    task: str, request: Any, *, environment: Mapping[str, str] | None = None, **options: Any
) -> Any:
    with ForkServer(environment=environment) as server:
        return server.ask(task, request, **options)


def _encoded(**order: Any) -> bytes:
    def refuse(value: Any) -> None:
        raise TypeError(f"{printable(repr(value), 80)} ({type(value).__name__})")

    try:
        return json.dumps(order, default=refuse).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise UsageError(
            f"A knob cannot be sent to the worker process: {problem}.",
            "Give knobs as numbers, text, true or false, or lists of them, "
            "and make the object inside the workload's function.",
        ) from None


def open_log(path: Path | None) -> IO[bytes]:
    # a pipe would soon be full, and the task would wait for ever
    if path is not None and path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file.", "Remove it, or choose another --out.")
    try:
        return tempfile.TemporaryFile() if path is None else open(path, "a+b")
    except OSError as problem:
        raise EnvironmentProblem(
            f"{path or 'A temporary file'} cannot be written: {problem.strerror}.",
            "Make room or choose another folder with --out, then run it again.",
        ) from None


def tail(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 8000))
    lines = printable(log.read().decode(errors="replace")).strip().splitlines()
    return "\n".join(line[:400] for line in [*filter(is_of_user, lines)][-8:])
