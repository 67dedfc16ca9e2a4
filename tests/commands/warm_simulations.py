"""Simulations without the two seconds in which a new worker imports torch: a process that has imported it forks a worker for each.

Simulations that the tests' own process asks for are answered here where a test file says so (the fixture `warm_simulations`); the request,
the answer, the worker's code, its time limit and its end are the real ones. What is about a new process runs `vramcast` as one.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from typing import IO, Any

MOST_BYTES = 1 << 17
NUMBER = struct.Struct("q")
WHAT_WORKERS_IMPORT = (
    *(
        "vramcast.simulate.worker",
        "vramcast.simulate.session",
        "vramcast.simulate.kernels",
        "vramcast.simulate.ownership",
    ),
    *(
        "vramcast.simulate.patches",
        "vramcast.forecast.forecast",
        "vramcast.forecast.largest",
        "vramcast.simulate.planned",
    ),
)


class ForkedWorker:
    """What vramcast.simulate.runner needs of a subprocess.Popen."""

    def __init__(self, arguments: str, status: int) -> None:
        self.args, self._status = arguments, status
        self.pid: int = NUMBER.unpack(os.read(status, NUMBER.size))[0]
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = NUMBER.unpack(os.read(self._status, NUMBER.size))[0]
            os.close(self._status)
        return self.returncode


class WarmSimulations:
    """Stands in for vramcast.simulate.runner._start. The process that forks is started by the first request."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def start(self, request: dict[str, Any], log: IO[str]) -> tuple[int, ForkedWorker]:
        from vramcast.simulate import runner

        with self._starting:  # simulations are asked for from threads too
            link = self._link = self._link or self._launched()
        reader, writer = os.pipe()
        status, their_status = os.pipe()
        message = {"request": request, "folder": os.getcwd(), "environment": runner._environment()}
        socket.send_fds(link, [json.dumps(message).encode()], [writer, log.fileno(), their_status])
        os.close(writer)
        os.close(their_status)
        return reader, ForkedWorker(request["workload"], status)

    def _launched(self) -> socket.socket:
        from vramcast.simulate import runner

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=runner._environment(),
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        if self._link is not None and self._process is not None:
            self._link.close()
            self._process.wait()


def serve(link: socket.socket) -> None:
    """Until the tests are over: a worker for every message, and its exit code when it has ended."""
    from vramcast.simulate import device

    ready = device.Device(device.load())
    for module in WHAT_WORKERS_IMPORT:
        importlib.import_module(module)
    device.load, device.Device = lambda: ready.library, lambda library: ready  # type: ignore[assignment,misc]
    running: dict[int, tuple[int, int]] = {}
    while True:
        for handle in select.select([link, *running], [], [])[0]:
            if handle is link:
                message, descriptors, _, _ = socket.recv_fds(link, MOST_BYTES, 3)
                if not message:
                    return
                pid = os.fork()
                if pid == 0:
                    link.close()
                    become_worker(json.loads(message), *descriptors)
                os.close(descriptors[0])
                os.close(descriptors[1])
                running[os.pidfd_open(pid)] = (pid, descriptors[2])
            else:
                pid, status = running.pop(handle)
                os.close(handle)
                os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                os.close(status)


def become_worker(message: dict[str, Any], writer: int, log: int, status: int) -> None:
    from vramcast.simulate import worker

    os.setsid()
    os.write(status, NUMBER.pack(os.getpid()))
    for descriptor, place in ((log, 1), (log, 2), (os.open(os.devnull, os.O_RDONLY), 0)):
        os.dup2(descriptor, place)
    os.close(status)
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    sys.argv[1:] = [str(writer)]
    sys.stdin = io.StringIO(json.dumps(message["request"]))
    code = 1
    try:
        worker.main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
