"""The parent's side of real runs: starts the zygote, sends trials, watches, kills what hangs, and makes a record of whatever came of it.

It never touches CUDA. Whatever a worker does (dies, hangs, prints rubbish, exits without a word), the answer is a Measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
from vramcast.probing.facts import Ending, Facts, KilledFor, Phase, Step
from vramcast.probing.measurement import measurement_from
from vramcast.probing.stability import stall_threshold_seconds
from vramcast.probing.trial import Trial
from vramcast.probing.zygote import MAX_MESSAGE_BYTES
from vramcast.processes.lifetime import child_environment
from vramcast.records.measurement import Measurement
from vramcast.text import printable

START_SECONDS = 120.0
STOP_SECONDS = 10.0
GIVE_UP_SECONDS = (
    60.0  # a killed worker's GPU memory is given back within seconds, or the driver hangs
)
MOST_RUBBISH_BYTES = 1 << 20
MOST_LINE_CHARACTERS = 400
# what Python's report of a fatal signal says beside the user's lines
MACHINERY = (
    "Extension modules:",
    'File "<frozen runpy>"',
    f'File "{Path(__file__).parent}{os.sep}',
)
Progress = Callable[[Facts], None]


class Prober:
    """Runs trials one after another, each in a fresh process; torch and `preload` are imported once for all of them."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = list(preload)
        self._link: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._first_words: Any = None  # what the zygote prints until it is ready
        self._busy = False

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Let torch begin to be imported now, beside whatever else is done; the first trial waits for what is left of it."""
        if self._link is None:
            self._launch()

    def run(
        self, trial: Trial, log: Path | None = None, progress: Progress = lambda *_: None
    ) -> Measurement:
        """Run it. Wrong requests (no such file, knob, ...) are raised; everything else is a value."""
        started = time.monotonic()
        message = _message(trial)
        with _open_log(log) as worker_log:
            watch = self._watched(message, _Watch(trial, progress), worker_log.fileno())
            if (
                watch.zygote_died and not watch.pid
            ):  # it had died since the last trial, and this one has not begun
                watch = self._watched(message, _Watch(trial, progress), worker_log.fileno())
            tail = _tail(worker_log)
        facts = watch.result()
        if watch.refusal is not None:
            problem = watch.refusal
            kinds: dict[int, type[VramcastError]] = {2: WorkloadError, 1: EnvironmentProblem}
            raise kinds.get(problem["exit_code"], VramcastError)(
                problem["message"], problem["advice"]
            )
        ending = Ending(killed_for=watch.killed_for, exit_status=watch.status, log_tail=tail)
        return measurement_from(trial, facts, ending, seconds=time.monotonic() - started)

    def close(self) -> None:
        """End the zygote. While a worker runs it ends that first, with all that the worker has started; without one it is just killed."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._first_words is not None:
            self._first_words.close()
            self._first_words = None
        if self._zygote is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._zygote.wait(timeout=STOP_SECONDS if self._busy else 0)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._zygote.pid, signal.SIGKILL)
            self._zygote.wait()
            self._zygote = None

    def _launch(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._first_words = _open_log(None)
        with theirs:
            self._zygote = subprocess.Popen(
                # -P: a random.py in the user's folder is not Python's
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "vramcast.probing.zygote",
                    str(theirs.fileno()),
                    json.dumps(self._preload),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._first_words,
                stderr=self._first_words,
                pass_fds=[theirs.fileno()],
                env=child_environment(),
                start_new_session=True,
            )

    def _until_ready(self) -> None:
        if self._first_words is None:
            return
        assert self._link is not None
        if not (select.select([self._link], [], [], START_SECONDS)[0] and _receive(self._link)):
            words = _tail(self._first_words)
            self.close()
            raise EnvironmentProblem(
                f"The process that runs probes did not start.\n{words}".rstrip(),
                f"Make `{sys.executable} -c 'import {', '.join(['torch', *self._preload])}'` work first.",
            )
        self._first_words.close()
        self._first_words = None

    def _watched(self, message: bytes, watch: _Watch, log: int) -> _Watch:
        """One trial from its sending to its end. Whatever interrupts it ends everything."""
        finished = False
        try:
            self.start()
            self._until_ready()
            assert self._link is not None
            self._busy = True
            watch.zygote_died = not _send(
                self._link, message, [watch.result_writer, watch.progress_writer, log]
            )
            watch.start()
            watch.until_ended(self._link)
            finished = not watch.zygote_died
        finally:
            watch.close()
            if not finished:
                self.close()
            self._busy = False
        return watch


class _Watch:
    """One trial as seen from outside: its pipes, its phase, its last sign of life."""

    def __init__(self, trial: Trial, progress: Progress) -> None:
        self.trial, self._progress = trial, progress
        self.result_reader, self.result_writer = os.pipe()
        self.progress_reader, self.progress_writer = os.pipe()
        self.pid = 0
        self.status: int | None = None
        self.zygote_died = False
        self.killed_for: KilledFor | None = None
        self.refusal: dict[str, Any] | None = None
        self._result, self._rest = bytearray(), b""
        self._facts = Facts()
        self._started = self._last_progress = self._killed = time.monotonic()

    def start(self) -> None:
        """The trial is on its way: its time begins, not when torch begins to be imported."""
        self.close_writers()
        self._started = self._last_progress = time.monotonic()

    def until_ended(self, link: socket.socket) -> None:
        """Read everything until the zygote says that the worker is gone."""
        open_pipes = {self.result_reader, self.progress_reader}
        while self.status is None and not self.zygote_died:
            ready, _, _ = select.select([*open_pipes, link.fileno()], [], [], 0.25)
            for source in ready:
                if source == link.fileno():
                    self._heard(_receive(link))
                elif not self._read(source):
                    open_pipes.discard(source)
            self._check_time()
        for pipe in open_pipes:  # what was still in the pipes when it ended
            while select.select([pipe], [], [], 0)[0] and self._read(pipe):
                pass

    def _heard(self, message: bytes) -> None:
        if not message:
            self.zygote_died = True
            return
        answer = json.loads(message)
        self.pid = answer.get("pid", self.pid)
        self.status = answer.get("status")

    def _read(self, pipe: int) -> bool:
        chunk = os.read(pipe, 1 << 16)
        if pipe == self.result_reader:
            self._result += chunk
        else:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = b"" if len(self._rest) > MOST_RUBBISH_BYTES else self._rest
            for line in filter(None, lines):
                self._note(line)
        return bool(chunk)

    def _note(self, line: bytes) -> None:
        # user code may write anything into any descriptor
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            news = json.loads(line)
            if "step" in news:
                self._facts.add(Step.from_dict(news["step"]))
            else:
                self._facts.hear(news["facts"])
            self._last_progress = time.monotonic()
        self._progress(self._facts)

    def _check_time(self) -> None:
        now = time.monotonic()
        if self.killed_for is not None:
            self.kill()  # again: it may not have had its number yet
            self.zygote_died = now - self._killed > GIVE_UP_SECONDS  # as good as
            return
        if now - self._started > self.trial.timeout_seconds:
            self.killed_for = KilledFor.TIMEOUT
        elif self._facts.phase is Phase.MEASURE:
            known = self._facts.step_seconds or self._facts.warmup_step_seconds
            if now - self._last_progress > stall_threshold_seconds(
                known, self.trial.stall_floor_seconds
            ):
                self.killed_for = KilledFor.STALL
        if self.killed_for is not None:
            self._killed = now
            self.kill()

    def kill(self) -> None:
        if self.pid and self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)  # it may not have made its group yet

    def result(self) -> Facts:
        """The worker's own account if it gave one, else what was heard until it ended."""
        # one document; user code may have written anything beside it
        for line in reversed(bytes(self._result).splitlines()):
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                answer = json.loads(line)
                self.refusal = answer.get("usage_error")
                return self._facts if self.refusal else Facts.from_dict(answer["facts"])
        return self._facts

    def close_writers(self) -> None:
        for descriptor in (self.result_writer, self.progress_writer):
            if descriptor >= 0:
                os.close(descriptor)
        self.result_writer = self.progress_writer = -1

    def close(self) -> None:
        self.close_writers()
        os.close(self.result_reader)
        os.close(self.progress_reader)


def _message(trial: Trial) -> bytes:
    try:
        message = json.dumps(trial.to_dict()).encode()
    except (TypeError, ValueError) as problem:
        raise UsageError(
            f"A knob cannot be sent to the worker process: {problem}.",
            "Give knobs as numbers, text, true or false, or lists of them, and make the object inside the workload's function.",
        ) from None
    if len(message) > MAX_MESSAGE_BYTES:
        raise UsageError(
            f"The workload's knobs are {len(message):,} bytes; {MAX_MESSAGE_BYTES:,} can be sent.",
            "Put large values into a file and give its name.",
        )
    return message


def _send(link: socket.socket, message: bytes, descriptors: list[int]) -> bool:
    try:
        socket.send_fds(link, [message], descriptors)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _receive(link: socket.socket) -> bytes:
    """Empty when the other side is gone."""
    try:
        return link.recv(MAX_MESSAGE_BYTES)
    except ConnectionResetError:  # it died before it read what was sent
        return b""


def _open_log(path: Path | None) -> Any:
    try:
        return open(path, "w+b") if path is not None else tempfile.TemporaryFile()  # noqa: SIM115  closed by the caller's with
    except OSError as problem:
        what = f"{path or 'A temporary file'} cannot be written: {problem.strerror}."
        raise EnvironmentProblem(
            what, "Make room or choose another folder with --out, then run it again."
        ) from None


def _tail(log: Any) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - 8000))
    lines = printable(log.read().decode(errors="replace")).strip().splitlines()
    shown = [
        line[:MOST_LINE_CHARACTERS] for line in lines if not line.strip().startswith(MACHINERY)
    ]
    return "\n".join(shown[-8:])
