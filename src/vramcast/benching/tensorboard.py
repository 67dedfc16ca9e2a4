"""The steps of a trial as files for TensorBoard. Runs in the worker process."""

import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from vramcast.benching.trial_folder import Steps
from vramcast.hardware.environment import require_package
from vramcast.units import GiB


class Board(AbstractContextManager["Board"]):
    """Written from the start with the steps in `done`, because an interrupted run may have written
    more."""

    def __init__(self, folder: Path, tokens_per_step: int, done: Steps) -> None:
        # checked again, because this may be a node of a cluster
        require_package("tensorboard", "--tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._tokens_per_step = tokens_per_step
        # A step's wall time is the training time so far, so that pauses do not show.
        self._started = time.time() - done.seconds
        self._writer = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]
        self.add(Steps(), done)

    def __exit__(self, *_: object) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]

    def add(self, before: Steps, steps: Steps) -> None:
        step, at, tokens = len(before), self._started + before.seconds, self._tokens_per_step
        add: Any = self._writer.add_scalar
        values = zip(steps.losses, steps.step_seconds, steps.step_memory_bytes, strict=True)
        for loss, seconds, memory_bytes in values:
            step, at = step + 1, at + seconds
            if loss is not None:
                add("loss", loss, step, at)
                add("loss by tokens", loss, step * tokens, at)
            add("tokens per second", tokens / seconds, step, at)
            add("memory (GiB)", memory_bytes / GiB, step, at)
