"""Reads regular files, writes them whole or not at all, and keeps a folder to one writer."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem, UsageError

OTHER_FOLDER = "Choose another folder with --out, or --force to begin again in this one."
MAX_FILE_BYTES = 4 << 30
# A process that was killed needs a moment until its lock is gone.
LOCK_SECONDS = 1.0


def cache_folder() -> Path:
    """For the compiled device, calibration tables and corpora."""
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VRAMCAST_CACHE") or Path(usual, "vramcast"))


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Of a regular file: a pipe or a device may never end."""
    try:
        # opening a pipe that nobody writes to would wait for ever
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is not a regular file.", "Give a file.")
            if status.st_size > max_bytes:
                raise UsageError(
                    f"{path} has {status.st_size:,} bytes; at most {max_bytes:,} are read.",
                    "Give a smaller file.",
                )
            return file.read(max_bytes)
    except OSError as problem:
        why = problem.strerror or problem
        raise UsageError(f"{path} cannot be read: {why}.", "Give a file that exists.") from None


def read_text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is no text: {problem}.", "Give a text file.") from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """The file has its old content or the new one, never a part."""
    # names and arguments that are no UTF-8 come back as the bytes they were
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as problem:
        advice = "Make room or choose another folder with --out, then run it again."
        raise _not_written(path, problem, advice) from None
    finally:  # an interruption leaves nothing half-written either
        with contextlib.suppress(OSError):
            temporary.unlink()


def _not_written(path: Path, problem: OSError, advice: str) -> EnvironmentProblem:
    why = problem.strerror or problem
    return EnvironmentProblem(f"{path} cannot be written: {why}.", advice)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def new_folder(path: Path, *, force: bool) -> Path:
    """For a run; one that has something in it is only used again with --force."""
    with usable(path):
        path.mkdir(parents=True, exist_ok=True)
        is_used = any(path.iterdir())
    if is_used and not force:
        raise UsageError(
            f"{path} already holds a run.",
            "Choose another folder with --out, or --force to write over it.",
        )
    return path


def check_same(folder: Path, kind: str, there: dict[str, Any], asked: dict[str, Any]) -> None:
    different = [name for name in asked if there.get(name) != asked[name]]
    if different:
        what = f"{folder} holds another {kind}: not the same {', '.join(different)}."
        raise UsageError(what, OTHER_FOLDER)


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """What the operating system refuses is raised as a wrong --out."""
    try:
        yield
    except OSError as problem:
        is_file = isinstance(problem, FileExistsError)
        why = "is a file, not a folder" if is_file else f"cannot be used: {problem.strerror}"
        raise UsageError(f"{folder} {why}.", "Choose another folder with --out.") from None


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Against other processes of vramcast; leaves no file behind."""
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while not _take_lock(descriptor):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"{path} is being written by {_lock_holder(descriptor)}.",
                    "Wait for it, or choose another folder with --out.",
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # some network file systems cannot lock a folder: better unlocked than not at all
    return True


def _lock_holder(descriptor: int) -> str:
    """The process that has the lock, where Linux tells: not across containers."""
    inode = os.fstat(descriptor).st_ino
    with contextlib.suppress(OSError):
        locks = Path("/proc/locks").read_text()
        if found := re.search(rf"FLOCK .* WRITE (\d+) \w+:\w+:{inode} ", locks):
            return f"process {found[1]}"
    return "another process"


def append_line(path: Path, value: Any) -> None:
    """On disk when this returns; `read_lines` drops what a crash cut short.

    Threads and processes may append to one file at the same time.
    """
    line = json.dumps(value) + "\n"
    try:
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read() == b"\n" else "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        advice = "Make room and run it again: what is in the file stays and is not measured again."
        raise _not_written(path, problem, advice) from None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not os.path.lexists(path):
        return
    for line in read_file(path).splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
