"""Reads regular files, writes them whole or not at all, and keeps a folder to one writer."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from vramcast.errors import EnvironmentProblem, UsageError
from vramcast.text import printable

OTHER_FOLDER = "Choose another --out, or --force to begin again in this one."
MAX_FILE_BYTES = 4 << 30
# After a process was killed, it takes a moment until its lock is released.
LOCK_SECONDS = 1.0
# Names of unfinished files, which lie beside their final place. Each is locked by its writer. If
# the lock is free, the writer was killed.
UNFINISHED = re.compile(r"\.vramcast-[0-9a-f]{16}\.new")


def cache_folder() -> Path:
    """The folder for the compiled device, calibration tables and corpora."""
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VRAMCAST_CACHE") or Path(usual, "vramcast"))


def check_trusted(path: Path) -> None:
    """Raises where another user may have written the file, or put it into its folder."""
    if not path.is_file():
        raise _not_regular(path)
    for each, what in ((path.parent, "folder"), (path, "file")):
        status = os.stat(each)
        owner, others_write = status.st_uid, status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if owner in (os.getuid(), 0) and not others_write:
            continue
        why = "other users can write to it" if others_write else f"it belongs to user {owner}"
        raise EnvironmentProblem(
            f"The {what} {each} in vramcast's cache is not used: {why}.",
            f"If you trust it: chmod go-w {each}. If not, remove it, or set VRAMCAST_CACHE to a "
            "folder of your own."
            if others_write
            else "Set VRAMCAST_CACHE to a folder of your own.",
        )


def make_folder(folder: Path) -> None:
    """Makes a folder. In vramcast's cache only its user may enter it, or `check_trusted` would
    refuse it."""
    if folder.is_relative_to(cache_folder()):
        cache_folder().parent.mkdir(parents=True, exist_ok=True)
        for each in (cache_folder(), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def open_regular(path: Path, mode: str = "rb") -> IO[bytes]:
    """Opens a regular file, and never waits. Pipes and devices are refused, because they may never
    end."""

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK, 0o666)

    file: IO[bytes] = open(path, mode, opener=without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _not_regular(path)
    return file


def _not_regular(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not a regular file.", "Give a file, or remove what is in its place."
    )


@contextlib.contextmanager
def opened(path: Path, max_bytes: int = MAX_FILE_BYTES) -> Iterator[IO[bytes]]:
    """Opens a regular file to read. Its problems are raised as a UsageError."""
    try:
        with open_regular(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes > max_bytes:
                raise UsageError(
                    f"{path} has {size_bytes:,} bytes; at most {max_bytes:,} are read.",
                    "Give a smaller file.",
                )
            yield file
    except OSError as problem:
        why = problem.strerror or problem
        raise UsageError(f"{path} cannot be read: {why}.", "Give a file that exists.") from None


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The contents of a regular file."""
    with opened(path, max_bytes) as file:
        # read() allocates as much as it is asked for at once
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not text: {problem}.", "Give a text file.") from None


def read_toml(path: Path, what: str, advice: str) -> dict[str, Any]:
    """The values of a TOML file. `what` says in an error what the file is."""
    import tomllib  # imported here, because most commands read no TOML

    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as problem:  # ValueError: also numbers of 5,000 digits
        raise UsageError(f"{what} {path} is not TOML: {problem}.", advice) from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file. It has either its old content or the new one, never a part."""
    # names and arguments that are not UTF-8 are written as their original bytes
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    try:
        make_folder(path.parent)
        if path.exists() and not path.is_file():
            raise _not_regular(path)
        remove_unfinished(path.parent)
        temporary, file = _new_file(path.parent)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if path.is_relative_to(cache_folder()):
                    os.fchmod(file.fileno(), 0o644 & os.fstat(file.fileno()).st_mode)
                os.replace(temporary, path)
        finally:  # an interruption leaves nothing half-written either
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as problem:
        advice = "Make room or choose another folder with --out, then run it again."
        raise _not_written(path, problem, advice) from None


def unfinished_name() -> str:
    return f".vramcast-{os.urandom(8).hex()}.new"


def _new_file(folder: Path) -> tuple[Path, IO[bytes]]:
    """A new unfinished file, locked so that nobody takes it for one that was left behind."""
    while True:
        path = folder / unfinished_name()
        file = open(path, "xb")  # noqa: SIM115
        lock(file.fileno())
        # somebody may have removed it before it was locked
        if path.exists():
            return path, file
        file.close()


def remove_unfinished(folder: Path) -> None:
    """Removes what killed writers have left in this folder."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if UNFINISHED.fullmatch(name):
                _remove_unless_locked(folder / name)


def _remove_unless_locked(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        finally:
            os.close(descriptor)


def _not_written(path: Path, problem: OSError, advice: str) -> EnvironmentProblem:
    why = problem.strerror or problem
    return EnvironmentProblem(f"{path} cannot be written: {why}.", advice)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def new_folder(path: Path, *, force: bool) -> Path:
    """Makes a run's folder. One that is not empty is used again only with --force."""
    with usable(path):
        path.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path)
        is_used = any(path.iterdir())
    if is_used and not force:
        raise UsageError(
            f"{path} already holds a run.",
            "Choose another folder, or --force to write over it.",
        )
    return path


def check_same(folder: Path, kind: str, there: dict[str, Any], asked: dict[str, Any]) -> None:
    different = [name for name in asked if there.get(name) != asked[name]]
    if different:
        what = f"{folder} holds another {kind}: not the same {', '.join(different)}."
        raise UsageError(what, OTHER_FOLDER)


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Errors of the operating system in this block are raised as a UsageError."""
    try:
        yield
    except OSError as problem:
        is_file = isinstance(problem, FileExistsError)
        why = "is a file, not a folder" if is_file else f"cannot be used: {problem.strerror}"
        raise UsageError(f"{folder} {why}.", "Choose another: --out or --trace.") from None


@contextlib.contextmanager
def locked_folder(path: Path, wait_seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Locks a folder against other processes of vramcast; leaves no file behind.

    The lock is on the folder itself, so it does not depend on any file in it.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        with usable(path):
            make_folder(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            while not lock(descriptor, wait=False):
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"{path} is being written by {_lock_holder(descriptor)}.",
                        "Wait for it, or choose another folder with --out.",
                    )
                time.sleep(0.05)
            if _is_still(path, descriptor):
                remove_unfinished(path)
                yield
                return
            # the last holder has removed the folder: lock the new one of that name
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked_run(path: Path | None, *, force: bool) -> Iterator[None]:
    """Locks a run's folder from before its first file until after its last. None means no
    folder."""
    if path is None:
        yield
        return
    with locked_folder(path):
        new_folder(path, force=force)
        yield


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Locks an open file, and says whether it has the lock now. The lock ends when its last copy is
    closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass  # some network file systems cannot lock: better to go on without a lock than to fail
    return True


def _lock_holder(descriptor: int) -> str:
    """The process that has the lock, if Linux tells; it does not across containers."""
    inode = os.fstat(descriptor).st_ino
    with contextlib.suppress(OSError):
        locks = Path("/proc/locks").read_text()
        if found := re.search(rf"FLOCK .* WRITE (\d+) \w+:\w+:{inode} ", locks):
            return f"process {found[1]}{_since(int(found[1]))}"
    return "another process"


def _since(pid: int) -> str:
    """A text with the process's command and its start time."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        # the fields after the program's name, which may contain spaces and brackets
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        uptime_seconds = float(Path("/proc/uptime").read_text().split()[0])
        age_seconds = uptime_seconds - int(ticks) / os.sysconf("SC_CLK_TCK")
        began = datetime.fromtimestamp(time.time() - age_seconds, UTC)
        command = " ".join(printable(" ".join(words)).split())[:80]
        return f" ({command}) since {began:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def append_line(path: Path, value: Any) -> None:
    """Appends a line, which is on disk when this returns. `read_lines` drops one that a crash cut
    short.

    Threads and processes may append to one file at the same time.
    """
    line = json.dumps(value) + "\n"
    try:
        with open_regular(path, "ab+") as file:
            lock(file.fileno())
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
            # json accepts half a surrogate pair, but no file can hold it
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
