"""Times commands: the shortest of several runs, in turns with the one they are compared with."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
VRAMCAST = (PYTHON, "-m", "vramcast")
IMPORT_TORCH = (PYTHON, "-c", "import torch")
SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Timing:
    """Of one command. The processor time and the memory are of its child processes too."""

    wall_seconds: float
    processor_seconds: float
    # of its largest process
    peak_bytes: int

    def best(self, other: Timing) -> Timing:
        return Timing(
            min(self.wall_seconds, other.wall_seconds),
            min(self.processor_seconds, other.processor_seconds),
            min(self.peak_bytes, other.peak_bytes),
        )


@dataclass(frozen=True)
class Row:
    """A line of the table. `ratio` is what is promised; `at_most` is the promise."""

    name: str
    command: str
    timing: Timing
    # what the ratio is of, for example "import torch" or "1 million events"
    against: str
    ratio: float
    at_most: float | None = None
    # limits in seconds and bytes, where the issue names them
    at_most_seconds: float | None = None
    at_most_bytes: int | None = None

    @property
    def is_kept(self) -> bool:
        limits = (
            (self.ratio, self.at_most),
            (self.timing.wall_seconds, self.at_most_seconds),
            (self.timing.peak_bytes, self.at_most_bytes),
        )
        return all(limit is None or value <= limit for value, limit in limits)


def once(
    command: Sequence[str],
    exit_codes: Sequence[int] = (0,),
    folder: Path = ROOT,
    leaves_server: bool = False,
    **variables: str,
) -> Timing:
    """`leaves_server`: processes that go on after the command are not waited for."""
    # what the command's own children leave behind comes here, and its time is counted
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    paths = filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    # compiled once, as what is installed is
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall_seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in exit_codes:
        raise SystemExit(f"{shown(command)} ended with exit code {process.returncode}")
    processor_seconds, peak_kilobytes = used.ru_utime + used.ru_stime, used.ru_maxrss
    while not leaves_server:
        try:
            _, _, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        processor_seconds += used.ru_utime + used.ru_stime
        peak_kilobytes = max(peak_kilobytes, used.ru_maxrss)
    return Timing(wall_seconds, processor_seconds, peak_kilobytes * 1024)


def in_turns(repeats: int, *commands: Sequence[str], **options: object) -> list[Timing]:
    """The shortest of each. In turns, so that a busy machine is busy for all of them."""
    best: list[Timing | None] = [None] * len(commands)
    for _ in range(repeats):
        for index, command in enumerate(commands):
            timing = once(command, **options)  # type: ignore[arg-type]
            before = best[index]
            best[index] = timing if before is None else timing.best(before)
    return [timing for timing in best if timing is not None]


def against_torch(
    name: str,
    command: Sequence[str],
    repeats: int,
    *,
    at_most: float | None = None,
    at_most_seconds: float | None = None,
    exit_codes: Sequence[int] = (0,),
    leaves_server: bool = False,
    **variables: str,
) -> Row:
    """A row whose ratio is of `python -c "import torch"`."""
    torch, timing = in_turns(
        repeats,
        IMPORT_TORCH,
        command,
        exit_codes=(0, *exit_codes),
        leaves_server=leaves_server,
        **variables,
    )
    ratio = timing.wall_seconds / torch.wall_seconds
    return Row(name, shown(command), timing, "import torch", ratio, at_most, at_most_seconds)


def grown(
    name: str,
    sizes: Sequence[int],
    commands: Sequence[Sequence[str]],
    folder: Path,
    repeats: int,
    *,
    at_most_seconds: float | None,
    at_most_bytes: int | None = None,
) -> Iterator[Row]:
    """A row a size; the ratio of processor seconds to the first must not grow faster than the size.
    The limits are of the last, largest one."""
    first_seconds = 0.0
    for size, words in zip(sizes, commands, strict=True):
        command = (*VRAMCAST, *words)
        (best,) = in_turns(repeats, command, exit_codes=(0, 3), folder=folder)
        first_seconds = first_seconds or best.processor_seconds
        is_last = size == sizes[-1]
        yield Row(
            name.format(f"{size:,}"),
            shown(command),
            best,
            f"{sizes[0]:,}",
            best.processor_seconds / first_seconds,
            at_most=1.2 * size / sizes[0],
            at_most_seconds=at_most_seconds if is_last else None,
            at_most_bytes=at_most_bytes if is_last else None,
        )


def shown(command: Sequence[str]) -> str:
    words = ["vramcast", *command[3:]] if tuple(command[:3]) == VRAMCAST else list(command)
    words = ["python" if word == PYTHON else word for word in words]
    return " ".join(word.replace(f"{ROOT}/", "") for word in words)
