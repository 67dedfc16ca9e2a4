"""The parent's side of a simulation: start the worker, give it the request, wait, kill it when it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from vramcast.errors import EnvironmentProblem, UsageError, VramcastError, WorkloadError
from vramcast.processes import child_environment

FAREWELL_SECONDS = 5.0


def simulate(request: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """The worker's answer; its errors are raised here."""
    if not timeout_seconds > 0:  # nan is not
        raise UsageError(f"The time limit --timeout must be positive, not {timeout_seconds:g} s.", "For example --timeout 300.")
    with tempfile.TemporaryFile("w+") as log:
        reader, process = _start(request, log)
        try:
            text = _read_all(reader, process, timeout_seconds)
        except BaseException:
            _stop(process, 0.0)
            raise
        finally:
            os.close(reader)
        _stop(process, FAREWELL_SECONDS)
        if not text:
            raise _crash(process.returncode, log)
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        problem = answer["error"]
        kinds: dict[int, type[VramcastError]] = {2: WorkloadError, 1: EnvironmentProblem}
        raise kinds.get(problem["exit_code"], VramcastError)(problem["message"], problem["advice"])
    return dict(answer["ok"])


def _start(request: dict[str, Any], log: IO[str]) -> tuple[int, subprocess.Popen[str]]:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "vramcast.simulate.worker", str(writer)],  # -P: no module of the user's folder shadows Python's
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
        PYTORCH_JIT="0",  # scripted functions run as they are written: the fuser would compile for a GPU that is not there
    )


def _read_all(reader: int, process: subprocess.Popen[str], timeout_seconds: float) -> str:
    deadline = time.monotonic() + timeout_seconds
    chunks: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WorkloadError(
                f"The workload did not finish within {timeout_seconds:g} s: its build or step may never end.",
                "Allow more time with --timeout SECONDS, or look for a loop that waits for a value the GPU would compute.",
            )
        ready, _, _ = select.select([reader], [], [], min(left, 0.5))
        if ready:
            chunk = os.read(reader, 1 << 20)
            if not chunk:
                return b"".join(chunks).decode()
            chunks.append(chunk)
        elif process.poll() is not None and not select.select([reader], [], [], 0)[0]:
            return b"".join(chunks).decode()


def _stop(process: subprocess.Popen[str], patience_seconds: float) -> None:
    """No worker, nor anything it started, outlives the prediction; one that is about to end may, its exit code is wanted."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience_seconds)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _crash(code: int, log: IO[str]) -> VramcastError:
    log.seek(0)
    tail = "\n".join(log.read().strip().splitlines()[-8:])
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return WorkloadError(
        f"The simulation ended with {how} and gave no answer.\n{tail}".rstrip(),
        "If your code calls sys.exit() or needs the contents of a GPU tensor outside torch, take that out of build and step.",
    )
