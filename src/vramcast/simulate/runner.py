"""Simulates workloads, each in a process of its own; many fork from one that has torch."""

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from vramcast.errors import VramcastError, WorkloadError
from vramcast.processes import kept
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed
from vramcast.units import check_timeout

TASK = "vramcast.simulate.worker:answer"
IMPORT_TASK = "vramcast.simulate.worker:import_libraries"
# run once for all simulations of a server
SHARED = ("vramcast.simulate.libraries:load_in_background", "vramcast.simulate.worker:preload")
# a prediction never touches a real GPU, needs no threads to compute, and does not run Triton's
# kernels
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
ADVICE = {
    FailureKind.TIMEOUT: "Allow more time with --timeout SECONDS, or look for a loop that waits "
    "for a value the GPU would compute.",
    FailureKind.KILLED: "Look at the host's memory, and at code of yours that needs the contents "
    "of a GPU tensor outside torch.",
    FailureKind.EXITED: "If your code calls sys.exit(), or closes descriptors that it did not "
    "open, take that out of build and step.",
    FailureKind.CRASHED: "If none of these lines is of your code, it is a mistake in vramcast: "
    "please report it.",
}
Tell = Callable[[Any], None]
_shared: ForkServer | None = None
_num_users = 0
_lock = threading.Lock()


def simulation_server() -> ForkServer:
    """The server that is kept between commands, if the user asked for that; else a server of our
    own."""
    asked = kept.wanted()
    if asked is not kept.Wanted.OFF:
        idle_seconds = kept.KEEP_SECONDS if asked is kept.Wanted.KEEP else None
        server = kept.KeptServer(SHARED, ENVIRONMENT, idle_seconds=idle_seconds)
        if server.connect():
            return server
    return ForkServer(SHARED, ENVIRONMENT)


@contextlib.contextmanager
def shared_server(server: ForkServer | None = None) -> Iterator[ForkServer]:
    """Simulations in this block fork from one process that has imported torch. This saves seconds
    each.

    When the last user has left, the server waits for the next simulation of this process.
    """
    global _shared, _num_users
    with _lock:
        used = _shared = _shared or server or _waiting.take()
        _num_users += 1
    try:
        yield used
    finally:
        with _lock:
            _num_users -= 1
            if _num_users == 0:
                _shared = None
                if server is None:
                    _waiting.put(used)


class _Waiting:
    """Holds this process's server while nobody uses it. It is closed when the process ends, after
    some minutes, or when environment variables have changed."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None
        self._variables: list[tuple[str, str]] = []
        self._process = 0
        self._end = threading.Timer(0, self.close)
        self._changing = threading.Lock()

    def take(self) -> ForkServer:
        with self._changing:
            self._end.cancel()
            server, self._server = self._server, None
        if server is not None and self._process == os.getpid():
            if self._variables == kept.variables_that_matter(ENVIRONMENT):
                return server
            server.close()
        return simulation_server()

    def put(self, server: ForkServer) -> None:
        self.close()  # another that is waiting
        with self._changing:
            if not self._process:
                atexit.register(self.close)
            self._server, self._process = server, os.getpid()
            self._variables = kept.variables_that_matter(ENVIRONMENT)
            self._end = threading.Timer(kept.KEEP_SECONDS, self.close)
            self._end.daemon = True
            self._end.start()

    def close(self) -> None:
        with self._changing:
            self._end.cancel()
            server, self._server = self._server, None
        # not in a process that user code has forked, because that does not own the server
        if server is not None and self._process == os.getpid():
            server.close()


_waiting = _Waiting()


@contextlib.contextmanager
def early_server() -> Iterator[None]:
    """Begins to import torch for the simulations in this block, before the first is asked for."""
    if _shared is None:
        server = simulation_server()
        server.start()
        _waiting.put(server)
    try:
        yield
    finally:
        _waiting.close()


@contextlib.contextmanager
def _server_for(request: dict[str, Any]) -> Iterator[ForkServer]:
    """The server for this request: a launch line may name another Python interpreter."""
    python = request.get("python")
    with ForkServer(SHARED, ENVIRONMENT, python) if python else shared_server() as server:
        yield server


def simulate(
    request: dict[str, Any],
    timeout_seconds: float,
    tell: Tell = lambda _: None,
    stop: threading.Event | None = None,
    on_output: Callable[[bytes], None] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """The answer, with the seconds that it took. `on_output` receives what a program prints;
    `meanwhile` is called while the other process works."""
    check_timeout(timeout_seconds)
    # imported here: a command starts its worker process as soon as this module is imported
    from vramcast.workload import parse_reference

    started = time.perf_counter()
    target = "" if "line" in request else parse_reference(request["workload"]).portable
    with _server_for(request) as server:
        try:
            answer = server.ask(
                TASK,
                {**request, "target": target},
                timeout_seconds=timeout_seconds,
                progress=tell,
                stop=stop.is_set if stop else lambda: False,
                on_output=on_output,
                meanwhile=meanwhile,
                family=_family({**request, "target": target}),
            )
        except TaskFailed as failure:
            raise _explained(failure, timeout_seconds, is_program="line" in request) from None
    return {**answer, "seconds": time.perf_counter() - started}


def _family(request: dict[str, Any]) -> dict[str, Any] | None:
    """Names the simulations that import the same libraries with the same GPU, which libraries may
    look at. None for launch lines, several GPUs and traces, which are written only once."""
    if {"line", "trace", "gpus"} & request.keys():
        return None
    what = {name: request[name] for name in ("gpu", "memory_bytes", "allocator")}
    name = f"{request['gpu']} {request['target']}"
    return {"name": name, "task": IMPORT_TASK, "request": what}


def _explained(failure: TaskFailed, timeout_seconds: float, *, is_program: bool) -> VramcastError:
    if failure.kind is FailureKind.STOPPED:
        return VramcastError("Stopped, because another simulation of the same request failed.")
    if failure.kind is FailureKind.NOT_STARTED:
        return failure
    message = failure.message
    if failure.kind is FailureKind.TIMEOUT and is_program:
        return WorkloadError(
            f"Not enough of the program was seen within {timeout_seconds:g} s.",
            "Allow more time with --timeout SECONDS, or look for what it waits for: a server "
            "never ends, and a loop may wait for a value that the GPU would compute.",
        )
    if failure.kind is FailureKind.TIMEOUT:
        limit = f"The workload did not finish within {timeout_seconds:g} s"
        message = f"{limit}: its build or step may never end."
    return WorkloadError(message, ADVICE[failure.kind])
