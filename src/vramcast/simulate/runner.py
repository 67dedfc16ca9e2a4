"""The parent's side of a simulation: start the worker, give it the request, wait, kill it when it takes too long.

Several run at the same time in threads that only wait. The first that fails ends the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import IO, Any

from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
from vramcast.processes.lifetime import child_environment
from vramcast.text import printable

FAREWELL_SECONDS = 5.0
MOST_PRINTED_LINES, MOST_PRINTED_CHARACTERS = 8, 2000
Tell = Callable[[dict[str, Any], Any], None]


def simulate_all(
    requests: Sequence[dict[str, Any]], timeout_seconds: float, tell: Tell | None = None
) -> list[dict[str, Any]]:
    """The answers in the order of the requests, as many at a time as there are cores; `tell` is given a request and how far it is."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        try:
            waiting = [
                pool.submit(simulate, request, timeout_seconds, tell, stop) for request in requests
            ]
            done, _ = wait(waiting, return_when=FIRST_EXCEPTION)
            for failed in (job for job in done if job.exception() is not None):
                failed.result()
        except BaseException:  # an interruption too: no worker is left running
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [job.result() for job in waiting]


def simulate(
    request: dict[str, Any],
    timeout_seconds: float,
    tell: Tell | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """The worker's answer; its errors are raised here."""
    if not timeout_seconds > 0:  # nan is not
        raise UsageError(
            f"The time limit --timeout must be positive, not {timeout_seconds:g} s.",
            "For example --timeout 300.",
        )
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        reader, process = _start(request, log)
        try:
            text = _read_answer(
                reader,
                process,
                timeout_seconds,
                lambda far: tell(request, far) if tell else None,
                stop,
            )
        except BaseException:
            _stop(process, 0.0)
            raise
        finally:
            os.close(reader)
        _stop(process, FAREWELL_SECONDS)
        if not text:
            raise _crash(process.returncode, log)
        answer: dict[str, Any] = json.loads(text)
        printed = _printed(log) if "error" in answer else ""
    if "error" in answer:
        problem = answer["error"]
        kinds: dict[int, type[VramcastError]] = {2: WorkloadError, 1: EnvironmentProblem}
        if printed and problem["exit_code"] == WorkloadError.exit_code:
            problem["message"] += f"\nBefore that it printed:\n{printed}"
        raise kinds.get(problem["exit_code"], VramcastError)(problem["message"], problem["advice"])
    return dict(answer["ok"])


def _start(request: dict[str, Any], log: IO[str]) -> tuple[int, subprocess.Popen[str]]:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "vramcast.simulate.worker",
            str(writer),
        ],  # -P: no module of the user's folder shadows Python's
        stdin=subprocess.PIPE,
        stdout=log,  # what the user's code prints must not mix with the answer
        stderr=log,
        pass_fds=[writer],
        env=_environment(),
        start_new_session=True,
        text=True,
    )
    os.close(writer)
    with contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.write(json.dumps(request))
        process.stdin.close()
    return reader, process


def _environment() -> dict[str, str]:
    return child_environment(
        CUDA_VISIBLE_DEVICES="",  # a prediction does not touch a GPU that is there
        OMP_NUM_THREADS="1",  # nothing is computed
    )


def _read_answer(
    reader: int,
    process: subprocess.Popen[str],
    timeout_seconds: float,
    tell: Callable[[Any], None],
    stop: threading.Event | None,
) -> str:
    """What comes after the last line that tells how far it is."""
    deadline = time.monotonic() + timeout_seconds
    text = b""
    while True:
        _check_time(deadline, timeout_seconds, stop)
        ready, _, _ = select.select(
            [reader], [], [], min(max(0.0, deadline - time.monotonic()), 0.5)
        )
        if ready:
            chunk = os.read(reader, 1 << 20)
            if not chunk:
                return text.decode()
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                tell(json.loads(line)["progress"])
        elif process.poll() is not None and not select.select([reader], [], [], 0)[0]:
            return text.decode()


def _check_time(deadline: float, timeout_seconds: float, stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise VramcastError("Stopped, because another simulation of the same request failed.")
    if time.monotonic() >= deadline:
        raise WorkloadError(
            f"The workload did not finish within {timeout_seconds:g} s: its build or step may never end.",
            "Allow more time with --timeout SECONDS, or look for a loop that waits for a value the GPU would compute.",
        )


def _stop(process: subprocess.Popen[str], patience_seconds: float) -> None:
    """No worker, nor anything it started, outlives the prediction; one that is about to end may, its exit code is wanted."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience_seconds)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _printed(log: IO[str]) -> str:
    """The end of what the workload printed; a little is enough to see how far it came."""
    log.seek(0)
    return printable(
        "\n".join(log.read().strip().splitlines()[-MOST_PRINTED_LINES:]), MOST_PRINTED_CHARACTERS
    )


def _crash(code: int, log: IO[str]) -> VramcastError:
    tail = _printed(log)
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return WorkloadError(
        f"The simulation ended with {how} and gave no answer.\n{tail}".rstrip(),
        "If your code calls sys.exit() or needs the contents of a GPU tensor outside torch, take that out of build and step.",
    )
