"""A trial's folder: whole files at every moment, and enough in them to go on after any interruption.

trial.json      what is trained: model, protocol and its hash, data and their hash, seed
steps.jsonl     loss, time and memory of every step, some steps a line
checkpoint.pt   model, optimizer and random state after some step that steps.jsonl has; gone once the run has ended
result.json     the TrainedRun, written last: where it is, everything is
worker.log      what the model's code printed
tensorboard/    the steps for TensorBoard, where asked for
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from vramcast.errors import UsageError
from vramcast.records.bench import TrainedRun, Trial
from vramcast.records.store import append_line, read_lines, write_atomically, write_json

FILES = ("trial.json", "steps.jsonl", "checkpoint.pt", "result.json", "worker.log")


@dataclass
class Steps:
    """One entry a step; JSON's names are these."""

    losses: list[float | None] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    step_memory_bytes: list[int] = field(default_factory=list)
    data_wait_seconds: float = 0.0

    def add(self, other: Steps) -> None:
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
        self.checkpoint, self.log, self.board = (
            path / "checkpoint.pt",
            path / "worker.log",
            path / "tensorboard",
        )
        self._trial, self._steps, self._result = (
            path / "trial.json",
            path / "steps.jsonl",
            path / "result.json",
        )

    def check(self, trial: Trial, *, force: bool) -> None:
        """Whether this trial may begin here; emptied where it is forced to begin again."""
        with self._usable():
            for name in (
                reversed(FILES) if force else ()
            ):  # the result goes early: what is half removed must not look whole
                (self.path / name).unlink(missing_ok=True)
        if force:
            shutil.rmtree(self.board, ignore_errors=True)
        if self._trial.exists():
            self._check_same(trial)

    def begin(self, trial: Trial) -> None:
        """New, or as an interrupted run of the same trial left it; how an earlier one failed is forgotten."""
        with self._usable():
            self.path.mkdir(parents=True, exist_ok=True)
            self._result.unlink(missing_ok=True)
        if not self._trial.exists():
            write_json(self._trial, trial.to_dict())

    def forget(self) -> None:
        """A trial that was asked for wrongly has nothing to go on with."""
        with contextlib.suppress(OSError):
            if not len(self.steps()):
                for name in FILES:
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            what = f"The folder {self.path} cannot be used: {problem.strerror}."
            raise UsageError(what, "Choose another folder with --out.") from None

    def _check_same(self, trial: Trial) -> None:
        there, asked = self.trial().to_dict(), trial.to_dict()
        different = sorted(name for name in asked if asked[name] != there[name])
        if different:
            raise UsageError(
                f"{self.path} holds another trial of {there['model']}: not the same {', '.join(different)}.",
                "Choose another folder with --out, or --force to begin again in this one.",
            )

    def lock(self) -> IO[bytes]:
        """Held until it is closed or the process ends, however it ends: two benches must not train into the same files."""
        file = open(self._trial, "rb")  # noqa: SIM115  closed by whoever holds it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError(
                f"Another process trains in {self.path}.",
                "Wait for it, or choose another folder with --out.",
            ) from None
        return file

    def trial(self) -> Trial:
        return Trial.from_file(self._trial)

    def result(self) -> TrainedRun | None:
        """None where the run has not ended."""
        return TrainedRun.from_file(self._result) if self._result.exists() else None

    def add_steps(self, first_step: int, steps: Steps) -> None:
        append_line(self._steps, {"first_step": first_step, **vars(steps)})

    def steps(self, most: int | None = None) -> Steps:
        """What the file has, up to a step at which a line ends. Steps that a resumed run did again are taken once."""
        found = Steps()
        for line in read_lines(self._steps):
            first = line.pop("first_step", None)
            if first != len(found) or (most is not None and first >= most):
                break
            if not _is_whole(line):
                raise UsageError(
                    f"{self._steps} has lines that are none of a training.",
                    "It was edited: begin again with --force.",
                )
            found.add(Steps(**line))
        return found

    def keep_steps(self, steps: Steps) -> None:
        """Only these: what came after a checkpoint is done again, and must not be there twice."""
        write_atomically(
            self._steps, json.dumps({"first_step": 0, **vars(steps)}) + "\n" if len(steps) else ""
        )

    def write_result(self, run: TrainedRun) -> None:
        write_json(self._result, run.to_dict())
        if run.finished:
            with contextlib.suppress(OSError):
                self.checkpoint.unlink(missing_ok=True)


def _is_whole(line: dict[str, Any]) -> bool:
    """Whether a line has what one of `Steps` has, as many of each."""
    lists = [value for value in line.values() if isinstance(value, list)]
    return (
        line.keys() <= vars(Steps()).keys()
        and len(lists) == 3
        and len({len(values) for values in lists}) == 1
    )


def find_runs(path: Path) -> list[TrainedRun]:
    """Every run of a bench's folder, or the one of a trial's folder; an unfinished one is an error that names it."""
    folders = (
        [path]
        if (path / "trial.json").exists()
        else sorted(p.parent for p in path.glob("*/trial.json"))
    )
    if not folders:
        raise UsageError(
            f"{path} holds no run of vramcast bench.", "Give a folder that vramcast bench wrote."
        )
    return [_ended(folder) for folder in folders]


def _ended(path: Path) -> TrainedRun:
    folder = TrialFolder(path)
    try:
        result: Any = folder.result()
    except UsageError as problem:
        raise UsageError(f"{path}: {problem.message}", problem.advice) from None
    if result is None or not result.finished:
        how = "has not ended" if result is None else f"ended as {result.outcome}"
        raise UsageError(
            f"The run in {path} {how}.",
            "Start the same bench again with the same --out: it goes on where it stopped.",
        )
    run: TrainedRun = result
    return run
