"""The process that has imported torch once and forks a fresh worker for every trial, before any CUDA has started.

Started by the manager as `python -m vramcast.probing.zygote FD MODULES PID`. FD is a socket: each message from the manager is one trial as
JSON with three descriptors (result, progress, log); the answers are {"ready"}, {"pid"} when the worker runs and {"status"} when it has
ended. When the manager closes its end, or dies, the running worker and whatever it has started are ended, and then this process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from vramcast.processes.lifetime import (
    adopt_orphans,
    end_children,
    end_with_the_parent,
    outlive_the_parent,
)

MAX_MESSAGE_BYTES = 1 << 17
# torch's optimizers import torch._dynamo when first made: a second and more, better once than in every trial
RUNNERS = (
    "vramcast.probing.on_gpu",
    "vramcast.probing.on_cpu",
    "vramcast.probing.worker",
    "torch._dynamo",
)


def serve(link: socket.socket, threads: int) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, MAX_MESSAGE_BYTES, 3)
        if not message:
            return
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            link.close()
            _become_worker(own_pid, threads, json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _send(link, {"pid": pid})
        status = _wait(pid, link)
        end_children()
        _send(link, {"status": os.waitstatus_to_exitcode(status)})


def _wait(pid: int, link: socket.socket) -> int:
    """The worker's status when it has ended; killed first when the manager is gone, who says nothing while a worker runs."""
    handle = os.pidfd_open(pid)
    try:
        select.select([handle, link.fileno()], [], [])
        if not select.select([handle], [], [], 0)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    return os.waitpid(pid, 0)[1]


def _become_worker(
    zygote: int, threads: int, trial: dict[str, Any], result: int, progress: int, log: int
) -> None:
    code = 1
    try:
        os.setsid()
        end_with_the_parent(zygote)
        _print_into(log)
        for descriptor in (result, progress):
            os.set_inheritable(descriptor, False)  # not for programs that the workload starts
        import torch

        from vramcast.probing.worker import work

        torch.set_num_threads(threads)
        work(trial, result, progress)
        code = 0
    except BaseException:
        import traceback

        with contextlib.suppress(Exception):  # the workload may have closed its output
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)  # the zygote's own clean-up must not run twice


def _print_into(log: int) -> None:
    """What the user's code prints must not mix with the answer, and be there when the process is killed."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable(all_threads=False)  # where it was, when it dies of a signal


def _send(link: socket.socket, value: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the manager is gone; the next recv says so too
        link.send(json.dumps(value).encode())


def _import_all(preload: list[str]) -> int:
    """The number of threads a worker computes with. Here nothing may compute with more than one: OpenMP's threads do not survive a fork,
    and a worker whose preloaded modules had started them would wait for them for ever."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for module in (*preload, *RUNNERS):  # first what may be missing
        importlib.import_module(module)
    return threads


def main() -> None:
    end_with_the_parent(int(sys.argv[3]))
    adopt_orphans()
    link = socket.socket(fileno=int(sys.argv[1]))
    # is_available() then asks NVML: the CUDA runtime, once asked, cannot be used after a fork
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    threads = _import_all(json.loads(sys.argv[2]))
    # The kernel's signal would come when the manager's thread ends, and would leave behind what a worker has started: from here on it
    # is the end of the link that ends this process.
    outlive_the_parent()
    _send(link, {"ready": True})
    serve(link, threads)
    os._exit(0)  # nothing to clean up, and torch takes its time over it


if __name__ == "__main__":
    main()
