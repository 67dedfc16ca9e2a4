"""The steps of a trial as files for TensorBoard. Runs in the worker process."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from vramcast.benching.trial_folder import Steps
from vramcast.errors import EnvironmentProblem
from vramcast.units import GiB


class Board:
    """A step's wall time is the time trained until then, so that pauses do not show."""

    def __init__(self, folder: Path, tokens_per_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            missing = "--tensorboard needs the package tensorboard, which is not installed."
            raise EnvironmentProblem(missing, "Install it with: pip install tensorboard.") from None
        self._writer_class = SummaryWriter
        self._folder, self._tokens_per_step = folder, tokens_per_step

    def begin(self, done: Steps) -> Board:
        """Write the files anew, with these steps: those of an interrupted run may have more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._started = time.time() - done.seconds
        self._writer = self._writer_class(str(self._folder))  # type: ignore[no-untyped-call]
        self.add(0, 0.0, done)
        return self

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]

    def add(self, first_step: int, seconds_before: float, steps: Steps) -> None:
        trained = seconds_before
        for index, (loss, seconds, memory) in enumerate(
            zip(steps.losses, steps.step_seconds, steps.step_memory_bytes, strict=True)
        ):
            step, trained = first_step + index + 1, trained + seconds
            values = {
                "tokens per second": self._tokens_per_step / seconds,
                "memory (GiB)": memory / GiB,
            }
            if loss is not None:
                values["loss"] = loss
                self._add("loss by tokens", loss, step * self._tokens_per_step, trained)
            for name, value in values.items():
                self._add(name, value, step, trained)

    def _add(self, name: str, value: float, place: int, trained: float) -> None:
        self._writer.add_scalar(name, value, place, walltime=self._started + trained)  # type: ignore[no-untyped-call]
