"""The processes in which trials run on this machine, on one of its GPUs."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed

TASK = "vramcast.benching.worker:work"
# torch's first optimizer imports torch._dynamo: seconds, better once than in every trial
IMPORTED_ONCE = ("torch", "vramcast.benching.trainer", "torch._dynamo")


class Stopped(Exception):
    """A trial was ended on purpose, and what it was doing is nobody's failure."""


class Workers:
    """A fresh process for every trial, on the GPU that is named where there are several."""

    def __init__(self, gpu: str | None = None) -> None:
        environment = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self._server = ForkServer(IMPORTED_ONCE, environment)
        self._stopped = threading.Event()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def stop(self) -> None:
        """From another thread: whoever waits for news gets `Stopped`."""
        self._stopped.set()

    def news(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        """The progress of one trial until it has written its result."""
        if self._stopped.is_set():
            raise Stopped
        try:
            yield from self._server.follow(
                TASK,
                request,
                timeout_seconds=math.inf,
                log=TrialFolder(Path(request["folder"])).log,
                stop=self._stopped.is_set,
            )
        except TaskFailed as failure:
            if failure.kind is FailureKind.STOPPED:
                raise Stopped from None
            raise
