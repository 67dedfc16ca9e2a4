"""Where trials run: processes on the GPUs of this machine. Ray's are in on_ray.py."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramcast.benching.trial_folder import TrialFolder
from vramcast.hardware import nvml
from vramcast.processes.ask import ForkServer
from vramcast.records.measurement import Device

# torch's first optimizer imports torch._dynamo: seconds, better once than in every trial
IMPORTED_ONCE = ("torch", "vramcast.benching.trainer", "torch._dynamo")


class Worker(AbstractContextManager["Worker"], ABC):
    """Trains trials one after another, each in a process of its own."""

    def __exit__(self, *_: object) -> None:
        """Leaves nothing running."""

    @abstractmethod
    def train(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        """The progress of one trial until it has written its result."""

    @abstractmethod
    def stop(self) -> None:
        """From another thread: whoever waits for progress gets a TaskFailed that says STOPPED."""


@dataclass(frozen=True)
class Machine:
    gpu: str | None  # its name in vramcast's list; None where it is not in it
    workers: Callable[[int], list[Worker]]  # for so many trials


class LocalWorker(Worker):
    def __init__(self, gpu: str | None = None) -> None:
        """`gpu` is given where there are several."""
        environment = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self._server = ForkServer(IMPORTED_ONCE, environment)
        self._stopped = threading.Event()

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def stop(self) -> None:
        self._stopped.set()

    def train(self, request: dict[str, Any]) -> Generator[Any, None, None]:
        return self._server.follow(
            "vramcast.benching.trainer:train_trial",
            request,
            timeout_seconds=math.inf,
            log=TrialFolder(Path(request["folder"])).log,
            stop=self._stopped.is_set,
        )


def this_machine(device: Device) -> Machine:
    if device == Device.CPU:
        return Machine(None, lambda _: [LocalWorker()])
    return Machine(nvml.gpu_here(), lambda num: [LocalWorker(gpu) for gpu in gpus_here()[:num]])


def gpus_here() -> list[str | None]:
    """Those that CUDA_VISIBLE_DEVICES shows, or all like the first one: they are comparable.

    [None] where there is only one: then nothing has to be set.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    visible = [name.strip() for name in shown if name.strip()]
    if not visible:
        states = nvml.gpu_states()
        visible = [state.uuid for state in states if state.name == states[0].name]
    return [*visible] if len(visible) > 1 else [None]
