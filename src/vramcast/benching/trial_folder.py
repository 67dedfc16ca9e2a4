"""The folder of one trial. Its files are always complete, so that an interrupted run can go on."""

import contextlib
import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vramcast.errors import UsageError
from vramcast.records import store
from vramcast.records.base import Bytes, Number, Seconds, convert
from vramcast.records.bench import BenchTrial, TrainedRun


@dataclass
class Steps:
    """Every list has one value for each step; a loss that was not finite is None."""

    losses: list[Number | None] = field(default_factory=list)
    step_seconds: list[Seconds] = field(default_factory=list)
    step_memory_bytes: list[Bytes] = field(default_factory=list)
    data_wait_seconds: Seconds = 0.0

    def add(self, other: Self) -> None:
        self.losses += other.losses
        self.step_seconds += other.step_seconds
        self.step_memory_bytes += other.step_memory_bytes
        self.data_wait_seconds += other.data_wait_seconds

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def seconds(self) -> float:
        return sum(self.step_seconds)


class TrialFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.log, self.board = path / "worker.log", path / "tensorboard"
        self.checkpoint, self.new_checkpoint = path / "checkpoint.pt", path / ".checkpoint.pt.new"
        self._trial, self._steps = path / "trial.json", path / "steps.jsonl"
        self._result = path / "result.json"

    def lock(self, wait_seconds: float = store.LOCK_SECONDS) -> AbstractContextManager[None]:
        """A lock on the folder itself, because --force removes its files."""
        return store.locked_folder(self.path, wait_seconds)

    def check(self, trial: BenchTrial, *, force: bool) -> None:
        """Refuses a folder of another trial. With `force` the folder is emptied."""
        if force:
            with store.usable(self.path), self.lock():
                self._remove_files()
        if not self._trial.exists():
            return
        there = self.trial()
        store.check_same(self.path, f"trial of {there.model}", there.to_dict(), trial.to_dict())

    def _remove_files(self) -> None:
        # The result first and the trial last, so that a folder that is half removed does not look
        # complete.
        results = self._result, self.log, self.checkpoint, self.new_checkpoint, self._steps
        for path in (*results, self._trial):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.board, ignore_errors=True)

    def begin(self, trial: BenchTrial, wait_seconds: float = store.LOCK_SECONDS) -> None:
        """Prepares the folder. What an interrupted run has left stays, except a result."""
        with store.usable(self.path), self.lock(wait_seconds):
            self._result.unlink(missing_ok=True)
            self.new_checkpoint.unlink(missing_ok=True)
            if not self._trial.exists():
                store.write_json(self._trial, trial.to_dict())

    def forget(self) -> None:
        """Removes a trial that was requested wrongly, unless it has steps."""
        with contextlib.suppress(OSError, UsageError), self.lock():
            if not len(self.steps()):
                self._remove_files()
                self.path.rmdir()

    def trial(self) -> BenchTrial:
        return BenchTrial.from_file(self._trial)

    def result(self) -> TrainedRun | None:
        return TrainedRun.from_file(self._result) if self._result.exists() else None

    def write_result(self, run: TrainedRun) -> None:
        store.write_json(self._result, run.to_dict())
        if run.finished:
            self.remove_checkpoints()

    def remove_checkpoints(self) -> None:
        """Removes the checkpoints of a run that has ended: it may have been killed before it did
        so."""
        for path in (self.checkpoint, self.new_checkpoint):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def add_steps(self, first_step: int, steps: Steps) -> None:
        store.append_line(self._steps, {"first_step": first_step, **vars(steps)})

    def keep_steps(self, steps: Steps) -> None:
        """Keeps only these steps: those after a checkpoint are done again."""
        line = json.dumps({"first_step": 0, **vars(steps)}) + "\n"
        store.write_atomically(self._steps, line if len(steps) else "")

    def steps(self, most: int | None = None) -> Steps:
        """The steps done. Those that a continued run did again count once."""
        found = Steps()
        for line in store.read_lines(self._steps):
            first = line.get("first_step")
            if first != len(found) or (most is not None and first >= most):
                break
            steps = convert(line, Steps, str(self._steps))
            if not len(steps) == len(steps.step_seconds) == len(steps.step_memory_bytes):
                raise UsageError(
                    f"{self._steps}: losses, step_seconds and step_memory_bytes from step {first} "
                    "on differ in length.",
                    "It was edited: begin again with --force.",
                )
            found.add(steps)
        return found


def find_runs(path: Path) -> list[TrainedRun]:
    """The runs of a bench's folder, or of a trial's."""
    runs = []
    for trial in (*path.glob("trial.json"), *sorted(path.glob("*/trial.json"))):
        run = TrialFolder(trial.parent).result()
        if run is None or not run.finished:
            how = "has not ended" if run is None else f"ended as {run.outcome}"
            raise UsageError(
                f"The run in {trial.parent} {how}.",
                "Start the same bench again with the same --out: it goes on where it stopped.",
            )
        runs.append(run)
    if not runs:
        raise UsageError(
            f"{path} holds no run of vramcast bench.", "Give a folder that vramcast bench wrote."
        )
    return runs
