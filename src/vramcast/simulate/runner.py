"""Simulates workloads, each in a process of its own; many fork from one that has torch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from vramcast.errors import UsageError, VramcastError, WorkloadError
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed
from vramcast.workload import parse_reference

TASK = "vramcast.simulate.worker:answer"
# once for all simulations of a server
SHARED = ("vramcast.simulate.libraries:load_in_background", "vramcast.simulate.worker:preload")
# a prediction does not touch a GPU that is there, and computes nothing, Triton's kernels neither
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
ADVICE = {
    FailureKind.TIMEOUT: "Allow more time with --timeout SECONDS, or look for a loop that waits "
    "for a value the GPU would compute.",
    FailureKind.KILLED: "Look at the host's memory, and at code of yours that needs the contents "
    "of a GPU tensor outside torch.",
    FailureKind.EXITED: "If your code calls sys.exit(), take that out of build and step.",
    FailureKind.CRASHED: "If none of these lines is of your code, it is a mistake in vramcast: "
    "please report it.",
}
Tell = Callable[[Any], None]
_shared: ForkServer | None = None
_early: ForkServer | None = None
_num_users = 0
_lock = threading.Lock()


def simulation_server() -> ForkServer:
    return ForkServer(SHARED, ENVIRONMENT)


@contextlib.contextmanager
def shared_server(server: ForkServer | None = None) -> Iterator[ForkServer]:
    """Simulations inside fork from one process that has imported torch: each saves seconds.

    The last that uses it closes it, unless it was given.
    """
    global _shared, _num_users
    with _lock:
        used = _shared = _shared or server or _new_server()
        _num_users += 1
    try:
        yield used
    finally:
        with _lock:
            _num_users -= 1
            if is_last := _num_users == 0:
                _shared = None
        if is_last and server is None:
            used.close()


@contextlib.contextmanager
def early_server() -> Iterator[None]:
    """Begins to import torch for the simulations inside, before one is asked for."""
    global _early
    if _shared is not None:
        yield
        return
    _early = simulation_server()
    try:
        _early.start()
        yield
    finally:
        if _early is not None:
            _early.close()
            _early = None


def _new_server() -> ForkServer:
    """The one that was started early, once; otherwise another."""
    global _early
    server, _early = _early or simulation_server(), None
    return server


def simulate(
    request: dict[str, Any],
    timeout_seconds: float,
    tell: Tell = lambda _: None,
    stop: threading.Event | None = None,
    on_output: Callable[[bytes], None] | None = None,
) -> dict[str, Any]:
    """The answer, with the seconds that it took. `on_output` gets what a program prints."""
    # also refuses NaN, which compares false with everything
    if not timeout_seconds > 0:
        raise UsageError(
            f"The time limit --timeout must be positive, not {timeout_seconds:g} s.",
            "For example --timeout 300.",
        )
    started = time.perf_counter()
    target = "" if "line" in request else parse_reference(request["workload"]).portable
    with shared_server() as server:
        try:
            answer = server.ask(
                TASK,
                {**request, "target": target},
                timeout_seconds=timeout_seconds,
                progress=tell,
                stop=stop.is_set if stop else lambda: False,
                on_output=on_output,
            )
        except TaskFailed as failure:
            raise _explained(failure, timeout_seconds) from None
    return {**answer, "seconds": time.perf_counter() - started}


def _explained(failure: TaskFailed, timeout_seconds: float) -> VramcastError:
    if failure.kind is FailureKind.STOPPED:
        return VramcastError("Stopped, because another simulation of the same request failed.")
    if failure.kind is FailureKind.NOT_STARTED:
        return failure
    message = failure.message
    if failure.kind is FailureKind.TIMEOUT:
        limit = f"The workload did not finish within {timeout_seconds:g} s"
        message = f"{limit}: its build or step may never end."
    return WorkloadError(message, ADVICE[failure.kind])
