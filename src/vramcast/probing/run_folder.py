"""A probe's folder: the request before the run, and the results after it.

The page of `vramcast probe` says what is in each file.
"""

import contextlib
import csv
import io
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware import environment
from vramcast.probing.facts import Facts
from vramcast.probing.measurement import unfinished
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Measurement
from vramcast.records.store import (
    locked_run,
    usable,
    write_atomically,
    write_json,
)
from vramcast.reporting.showing import markdown_of
from vramcast.workload import parse_reference

FILES = (
    "run_cmd.txt",
    "env.json",
    "metrics.csv",
    "summary.md",
    "worker.log",
    "trace.json",
    "snapshot.pickle",
    "metrics.json",
)
PREVIOUS = ".previous"
# Facts about its environment that the run itself reported.
MEASURED_WITH = (
    "gpu",
    "torch_version",
    "cuda_version",
    "driver_version",
    "driver_model",
    "allocator_settings",
)


class RunFolder:
    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path, self._force = path, force
        self.log = self.path / "worker.log"
        self._environment: dict[str, Any] = {}

    def locked(self) -> AbstractContextManager[None]:
        """A lock around everything that writes into the folder. Refuses a folder that holds a
        run."""
        return locked_run(self.path, force=self._force)

    def before(self, trial: Trial) -> None:
        """Writes the request. With --force, an earlier run's files are moved away until this run
        has ended.

        They are put back if the run cannot begin.
        """
        with usable(self.path):
            self._put_aside()
        workload = None if trial.line else parse_reference(trial.workload).path
        self._environment = environment.describe(workload.parent if workload else Path.cwd())
        write_atomically(self.path / "run_cmd.txt", environment.command_line() + "\n")
        write_json(self.path / "env.json", self._environment)
        write_json(self.path / "metrics.json", unfinished(trial, Facts()).to_dict())

    def _put_aside(self) -> None:
        """Moves the earlier run's files to .previous, metrics.json last: if that is there, all of
        them are.

        In that case the files in the folder are of a run that was killed, and are removed.
        """
        previous = self.path / PREVIOUS
        if (previous / "metrics.json").exists():
            for name in FILES:
                _remove(self.path / name)
        else:
            _move_files(self.path, previous, FILES)

    def after(self, measurement: Measurement) -> None:
        """Writes the results, metrics.json last: when it is finished, everything else is."""
        seen = {name: getattr(measurement, name) for name in MEASURED_WITH}
        write_json(self.path / "env.json", {**self._environment, "measured_with": seen})
        write_atomically(self.path / "metrics.csv", steps_csv(measurement))
        summary = markdown_of(measurement, f"Probe of {measurement.workload}")
        write_atomically(self.path / "summary.md", summary)
        write_json(self.path / "metrics.json", measurement.to_dict())
        shutil.rmtree(self.path / PREVIOUS, ignore_errors=True)

    def discard(self) -> None:
        """Brings the folder back to what it was, because nothing was run."""
        with contextlib.suppress(OSError):
            for name in FILES:
                _remove(self.path / name)
            _move_files(self.path / PREVIOUS, self.path, FILES[::-1])
        for folder in (self.path / PREVIOUS, self.path):
            with contextlib.suppress(OSError):  # it does not exist, or is not empty
                folder.rmdir()


def _move_files(source: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        if os.path.lexists(source / name):
            target.mkdir(exist_ok=True)
            _remove(target / name)
            (source / name).replace(target / name)


def _remove(path: Path) -> None:
    """Removes a file, or whatever somebody has put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_measurement(folder: Path) -> Measurement:
    """The measurement in a probe's folder, or in a metrics.json."""
    file = folder / "metrics.json" if folder.is_dir() else folder
    if not file.exists():
        raise UsageError(f"There is no {file}.", "Give a folder that vramcast probe wrote.")
    return Measurement.from_file(file)


def steps_csv(measurement: Measurement) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["step", "phase", "seconds", "loss"])
    measured = measurement.times.seconds if measurement.times else []
    steps = [("warm-up", seconds) for seconds in measurement.warmup_seconds]
    steps += [("measure", seconds) for seconds in measured]
    for number, (step, loss) in enumerate(zip(steps, measurement.losses, strict=True), 1):
        writer.writerow([number, *step, loss])
    return file.getvalue()
