"""Trials one after another, each in a process of its own; whatever a trial does, the others go on, and nothing is left running."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vramcast.benching.records import TrainedRun, Trial
from vramcast.benching.trial_folder import TrialFolder
from vramcast.errors import EnvironmentProblem, VramcastError, WorkloadError
from vramcast.processes import child_environment
from vramcast.text import printable

USAGE = 2  # the exit code of wrong usage
NUM_LINES = 8  # of what a process that died has printed last
Progress = Callable[[Trial, dict[str, Any]], None]


def run_trials(
    trials: Sequence[Trial], out: Path, data_path: Path, *, checkpoint_seconds: float, force: bool, progress: Progress
) -> list[TrainedRun]:
    """What has ended in an earlier run of the same bench is read, not trained again."""
    folders = [TrialFolder(out / folder_name(trial)) for trial in trials]
    for trial, folder in zip(trials, folders, strict=True):  # all of them first: a refusal comes before hours of training
        folder.check(trial, force=force)
    runs = []
    with Workers() as workers:
        for trial, folder in zip(trials, folders, strict=True):
            run = folder.result()
            if run is None or not run.finished:
                folder.begin(trial)
                request = {
                    "trial": trial.to_dict(),
                    "folder": str(folder.path.absolute()),
                    "data_path": str(data_path.absolute()),
                    "checkpoint_seconds": checkpoint_seconds,
                }
                run = ended(trial, folder, workers.run(request, functools.partial(progress, trial)))
            runs.append(run)
    return runs


def folder_name(trial: Trial) -> str:
    """For people, and never the same for two trials of one bench."""
    readable = re.sub(r"[^A-Za-z0-9.=]+", "-", trial.label).strip("-.")[-60:]
    distinct = hashlib.sha256(trial.label.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{readable}-{distinct}-seed{trial.seed}"


def ended(trial: Trial, folder: TrialFolder, end: dict[str, Any]) -> TrainedRun:
    """What a trial that has ended has left."""
    if "error" in end:
        problem = end["error"]
        if problem["exit_code"] == USAGE:
            folder.forget()
        kinds: dict[int, type[VramcastError]] = {USAGE: WorkloadError, 1: EnvironmentProblem}
        raise kinds.get(problem["exit_code"], VramcastError)(f"{trial.label}: {problem['message']}", problem["advice"])
    run = folder.result() if "outcome" in end else None
    if run is None:
        run = TrainedRun(trial=trial, outcome="crashed", environment={}, error=_last_words(end["ended"], folder.log))
        folder.write_result(run)
    return run


class Workers:
    """The process that forks one for every trial, as seen from outside; started with the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = -1

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """However it comes to this, an interruption included: nothing is left running."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            os.close(self._reader)
            self._process = None

    def run(self, request: dict[str, Any], progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """One trial: its last word, and the exit code of its process as "ended"."""
        process = self._process or self._start()
        assert process.stdin is not None
        end: dict[str, Any] = {}
        with contextlib.suppress(BrokenPipeError):  # it has died: there will be nothing to read, and its exit code says so
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        for news in _lines(self._reader, process):
            if "progress" in news:
                progress(news["progress"])
            else:
                end |= news
            if "ended" in news:
                return end
        code = process.wait()
        self.__exit__()
        return {"ended": code, **end}

    def _start(self) -> subprocess.Popen[bytes]:
        self._reader, writer = os.pipe()
        self._process = subprocess.Popen(
            # -P: a random.py in the user's folder is not Python's
            [sys.executable, "-P", "-m", "vramcast.benching.worker", str(writer), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[writer],
            env=child_environment(),
            start_new_session=True,
        )
        os.close(writer)
        return self._process


def _lines(reader: int, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Until the process has ended."""
    rest = b""
    while True:
        if not select.select([reader], [], [], 0.5)[0]:
            if process.poll() is None:
                continue
            if not select.select([reader], [], [], 0)[0]:
                return  # a process that the model's code has forked may hold the pipe open
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            with contextlib.suppress(ValueError, RecursionError):  # user code may write rubbish into any descriptor
                news = json.loads(line)
                if isinstance(news, dict):
                    yield news


def _last_words(code: int, log: Path) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    try:
        lines = printable(log.read_bytes()[-8000:].decode(errors="replace")).strip().splitlines()
    except OSError:
        lines = []
    return "\n".join([f"The process ended with {how}.", *lines[-NUM_LINES:]])
