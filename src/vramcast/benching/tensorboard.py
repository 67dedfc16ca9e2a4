"""The steps of a trial as files for TensorBoard. Runs in the worker process."""

from __future__ import annotations

import shutil
import time
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

from vramcast.benching.trial_folder import Steps
from vramcast.errors import EnvironmentProblem
from vramcast.units import GiB


def check_installed() -> None:
    if find_spec("tensorboard") is None:
        raise EnvironmentProblem(
            "--tensorboard needs the package tensorboard, which is not installed.",
            "Install it with: pip install tensorboard.",
        )


class Board(AbstractContextManager["Board"]):
    """Written anew with the steps `done`, because an interrupted run may have written more.

    A step's wall time is the time trained until then, so that pauses do not show.
    """

    def __init__(self, folder: Path, tokens_per_step: int, done: Steps) -> None:
        check_installed()
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._tokens_per_step = tokens_per_step
        self._started = time.time() - done.seconds
        self._writer = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]
        self.add(Steps(), done)

    def __exit__(self, *_: object) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]

    def add(self, before: Steps, steps: Steps) -> None:
        step, trained = len(before), before.seconds
        for loss, seconds, memory_bytes in zip(
            steps.losses, steps.step_seconds, steps.step_memory_bytes, strict=True
        ):
            step, trained = step + 1, trained + seconds
            if loss is not None:
                self._add("loss", loss, step, trained)
                self._add("loss by tokens", loss, step * self._tokens_per_step, trained)
            self._add("tokens per second", self._tokens_per_step / seconds, step, trained)
            self._add("memory (GiB)", memory_bytes / GiB, step, trained)

    def _add(self, name: str, value: float, place: int, trained: float) -> None:
        self._writer.add_scalar(name, value, place, walltime=self._started + trained)  # type: ignore[no-untyped-call]
