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

from vramcast.errors import EnvironmentProblem, VramcastError, WorkloadError
from vramcast.probing.contract import stall_threshold_seconds
from vramcast.probing.measurement import measurement_from
from vramcast.probing.trial import Trial
from vramcast.probing.zygote import MAX_MESSAGE_BYTES
from vramcast.records import Measurement

START_SECONDS = 120.0
STOP_SECONDS = 10.0
Progress = Callable[[str, dict[str, Any]], None]


class Prober:
    """Runs trials one after another, each in a fresh process; torch and `preload` are imported once for all of them."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = list(preload)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  as long as this object
        self._link: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, trial: Trial, log: Path | None = None, progress: Progress = lambda *_: None) -> Measurement:
        """Run it. Wrong requests (no such file, knob, ...) are raised; everything else is a value."""
        started = time.monotonic()
        if self._link is None:
            self._start()
        with _open_log(log) as worker_log:
            watch = _Watch(trial, progress, started)
            try:
                self._send(trial, watch, worker_log.fileno())
                watch.until_ended(self._link)
            except BaseException:
                self._abandon(watch)
                raise
            finally:
                watch.close()
            if watch.zygote_died:
                self.close()
            tail = _tail(worker_log)
        facts = watch.facts()
        if "usage_error" in facts:
            problem = facts["usage_error"]
            kinds: dict[int, type[VramcastError]] = {2: WorkloadError, 1: EnvironmentProblem}
            raise kinds.get(problem["exit_code"], VramcastError)(problem["message"], problem["advice"])
        return measurement_from(trial, facts, tail, seconds=time.monotonic() - started)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()  # the zygote ends when its link does
            self._link = None
        if self._zygote is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._zygote.wait(timeout=STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._zygote.pid, signal.SIGKILL)
            self._zygote.wait()
            self._zygote = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log.seek(0)
        self._log.truncate()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "vramcast.probing.zygote", str(theirs.fileno()), json.dumps(self._preload)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[theirs.fileno()],
            env=_environment(),
            start_new_session=True,
        )
        theirs.close()
        self._link = ours
        ready = select.select([ours], [], [], START_SECONDS)[0] and ours.recv(MAX_MESSAGE_BYTES)
        if not ready:
            self.close()
            raise EnvironmentProblem(
                f"The process that runs probes did not start.\n{_tail(self._log)}".rstrip(),
                f"Make `{sys.executable} -c 'import {', '.join(['torch', *self._preload])}'` work first.",
            )

    def _send(self, trial: Trial, watch: _Watch, log: int) -> None:
        assert self._link is not None
        try:
            socket.send_fds(self._link, [json.dumps(trial.to_dict()).encode()], [watch.result_writer, watch.progress_writer, log])
        except BrokenPipeError:
            watch.zygote_died = True
        watch.close_writers()

    def _abandon(self, watch: _Watch) -> None:
        """Interrupted: end the worker, let the zygote end what the worker started, and close."""
        watch.kill()
        if self._link is not None and watch.pid:
            with contextlib.suppress(OSError):
                select.select([self._link], [], [], STOP_SECONDS)
        self.close()


class _Watch:
    """One trial as seen from outside: its pipes, its phase, its last sign of life."""

    def __init__(self, trial: Trial, progress: Progress, started: float) -> None:
        self.trial, self._progress = trial, progress
        self.result_reader, self.result_writer = os.pipe()
        self.progress_reader, self.progress_writer = os.pipe()
        self.pid = 0
        self.status: int | None = None
        self.zygote_died = False
        self._killed_for: str | None = None
        self._result, self._rest = b"", b""
        self._partial: dict[str, Any] = {"step_seconds": [], "losses": [], "warmup_step_seconds": []}
        self._phase = "start"
        self._started = started
        self._last_progress = time.monotonic()

    def until_ended(self, link: socket.socket | None) -> None:
        """Read everything until the zygote says that the worker is gone."""
        open_pipes = {self.result_reader, self.progress_reader}
        while link is not None and self.status is None and not self.zygote_died:
            ready, _, _ = select.select([*open_pipes, link.fileno()], [], [], 0.25)
            for source in ready:
                if source == link.fileno():
                    self._heard(link.recv(MAX_MESSAGE_BYTES))
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
            for line in lines:
                self._note(line)
        return bool(chunk)

    def _note(self, line: bytes) -> None:
        from vramcast.probing.worker import add_step

        self._last_progress = time.monotonic()
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):  # user code may write rubbish into any descriptor
            news = json.loads(line)
            if "phase" in news:
                self._phase = news["phase"]
            elif "step" in news:
                add_step(self._partial, **news["step"])
            else:
                self._partial.update(news["facts"])
        self._progress(self._phase, self._partial)

    def _check_time(self) -> None:
        if self._killed_for is not None:
            return
        now = time.monotonic()
        if now - self._started > self.trial.timeout_seconds:
            self._killed_for = "timeout"
        elif self._phase == "measure":
            known = self._partial["step_seconds"] or self._partial["warmup_step_seconds"]
            if now - self._last_progress > stall_threshold_seconds(known, self.trial.stall_floor_seconds):
                self._killed_for = "stall"
        if self._killed_for is not None:
            self.kill()

    def kill(self) -> None:
        if self.pid and self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)  # it may not have made its group yet

    def facts(self) -> dict[str, Any]:
        """The worker's own account if it gave one, else what was heard until it ended."""
        for line in reversed(self._result.splitlines()):  # one document; user code may have written rubbish beside it
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict) and ("outcome" in answer or "usage_error" in answer):
                    return answer
        return {**self._partial, "phase": self._phase, "killed_for": self._killed_for, "exit_status": self.status, "outcome": None}

    def close_writers(self) -> None:
        for descriptor in (self.result_writer, self.progress_writer):
            if descriptor >= 0:
                os.close(descriptor)
        self.result_writer = self.progress_writer = -1

    def close(self) -> None:
        self.close_writers()
        os.close(self.result_reader)
        os.close(self.progress_reader)


def _open_log(path: Path | None) -> Any:
    return open(path, "w+b") if path is not None else tempfile.TemporaryFile()  # noqa: SIM115  closed by the caller's with


def _tail(log: Any) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - 8000))
    text = log.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-8:])


def _environment() -> dict[str, str]:
    package_root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package_root}{os.pathsep}{path}" if path else package_root, "TOKENIZERS_PARALLELISM": "false"}
