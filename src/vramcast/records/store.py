"""Files that are whole or not there: atomic writes, run folders, lists of records that survive a crash; and vramcast's own folder."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError

MOST_FILE_BYTES = 4 << 30


def cache_folder() -> Path:
    """What vramcast makes once and finds again: the compiled device, calibration tables, corpora."""
    base = os.environ.get("VRAMCAST_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vramcast"
    )
    return Path(base)


def read_file(path: Path, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The content of a regular file. A pipe or a device, which may never end, is refused."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is not a regular file.", "Give a file.")
            if status.st_size > most_bytes:
                raise UsageError(
                    f"{path} has {status.st_size:,} bytes; at most {most_bytes:,} are read.",
                    "Give a file that vramcast wrote.",
                )
            return file.read(most_bytes)
    except OSError as problem:
        why = problem.strerror or problem
        raise UsageError(f"{path} cannot be read: {why}.", "Give a file that exists.") from None


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe that nobody writes to would wait for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def write_atomically(path: Path, content: str | bytes) -> None:
    """The file has its old content or the new one, never a part, whatever happens meanwhile."""
    # names and arguments that are no UTF-8 come back as the bytes they were
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's files are private
        os.replace(temporary, path)
    except BaseException as problem:  # an interruption leaves nothing half-written either
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if not isinstance(problem, OSError):
            raise
        raise EnvironmentProblem(
            f"{path} cannot be written: {problem.strerror or problem}.",
            "Make room or choose another folder with --out, then run it again.",
        ) from None


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def new_folder(path: Path, *, force: bool) -> Path:
    """A folder for a run; one that has something in it is only used again with --force."""
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(
                f"{path} is a file, not a folder.", "Choose another folder with --out."
            )
        if path.is_dir() and any(path.iterdir()) and not force:
            raise UsageError(
                f"{path} already holds a run.",
                "Choose another folder with --out, or --force to write over it.",
            )
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(
            f"The folder {path} cannot be made: {problem.strerror}.", "Choose another with --out."
        ) from None
    return path


def append_line(path: Path, value: Any) -> None:
    """One more record at the end, on disk when this returns. A line torn by a crash is dropped when the file is read."""
    line = json.dumps(value) + "\n"
    try:
        with open(path, "ab+") as file:
            if file.tell() and not _ends_with_newline(file):
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise EnvironmentProblem(
            f"{path} cannot be written: {problem.strerror or problem}.",
            "Make room and run it again: what is in the file stays and is not measured again.",
        ) from None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole record; what a crash cut off is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise UsageError(
            f"{path} cannot be read: {problem.strerror}.",
            "Give a file of records that vramcast wrote.",
        ) from None
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    last: bytes = file.read(1)
    return last == b"\n"
