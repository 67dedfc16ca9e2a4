"""The process that has imported torch once and forks a fresh worker for every trial, before any CUDA has started.

Started by the manager as `python -m vramcast.probing.zygote FD`. FD is a socket: each message from the manager is one trial as JSON with
three descriptors (result, progress, log); the answers are {"ready"}, {"pid"} when the worker runs and {"status"} when it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys

from vramcast.probing.processes import adopt_orphans, end_all_children, end_with_the_parent

MAX_MESSAGE_BYTES = 1 << 17
# torch's optimizers import torch._dynamo when first made: a second and more, better once than in every trial
RUNNERS = ("vramcast.probing.on_gpu", "vramcast.probing.on_cpu", "vramcast.probing.worker", "torch._dynamo")


def serve(link: socket.socket) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, MAX_MESSAGE_BYTES, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            link.close()
            _become_worker(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _send(link, {"pid": pid})
        _, status = os.waitpid(pid, 0)
        end_all_children()
        _send(link, {"status": os.waitstatus_to_exitcode(status)})


def _become_worker(trial: dict[str, object], result: int, progress: int, log: int) -> None:
    code = 1
    try:
        os.setsid()
        end_with_the_parent()
        os.dup2(log, 1)  # what the user's code prints must not mix with the answer
        os.dup2(log, 2)
        from vramcast.probing.worker import work

        work(trial, result, progress)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the zygote's own clean-up must not run twice


def _send(link: socket.socket, value: dict[str, object]) -> None:
    link.send(json.dumps(value).encode())


def main() -> None:
    end_with_the_parent()
    adopt_orphans()
    link = socket.socket(fileno=int(sys.argv[1]))
    # is_available() then asks NVML: the CUDA runtime, once asked, cannot be used after a fork
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for module in ("torch", *RUNNERS, *json.loads(sys.argv[2])):
        importlib.import_module(module)
    _send(link, {"ready": True})
    serve(link)


if __name__ == "__main__":
    main()
