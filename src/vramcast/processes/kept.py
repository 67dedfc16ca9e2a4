"""A fork server that stays for the next command: where it listens, and who may use it.

It listens on a Unix socket in a folder that only its user can enter. The socket's name is a digest
of everything that could change its answers, so another interpreter, vramcast or environment has
another server.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.processes.ask import FailureKind, ForkServer, TaskFailed
from vramcast.processes.lifetime import LIMITS, child_environment, let_stay
from vramcast.text import printable

PEER = struct.Struct("3i")  # process, user, group
STATUS, STOP = b"?", b"."
MAX_STATUS_BYTES = 1 << 16
CONTROL_SECONDS = 5.0
STOP_SECONDS = 60.0
# longer than a fork takes on a busy machine; after that a server counts as stuck
START_SECONDS = 15.0
# failures of the server, not of the task
OF_SERVER = (FailureKind.NOT_STARTED, FailureKind.UNSUITED)
VARIABLE = "VRAMCAST_SERVER"
KEEP_SECONDS = 300.0
# Variables of the terminal, which no library reads when it is imported. The task gets its own.
PASSED_ON = {
    *("_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION"),
    *("COLUMNS", "LINES", "NO_COLOR", "WINDOWID", "DISPLAY", "TMUX", "TMUX_PANE", "STY"),
    *("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID", "PYTEST_CURRENT_TEST"),
    VARIABLE,
}


class Wanted(StrEnum):
    """What the variable VRAMCAST_SERVER asks for."""

    USE = "use"  # use one if it runs
    KEEP = "keep"  # start one if none runs
    OFF = "off"


def wanted() -> Wanted:
    text = os.environ.get(VARIABLE) or Wanted.USE
    if text not in list(Wanted):
        raise UsageError(
            f"The environment variable {VARIABLE} is {printable(text, 40)!r}.",
            f"Set it to one of {', '.join(Wanted)}, or to nothing.",
        )
    return Wanted(text)


def folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_private(Path(runtime)):
        return Path(runtime, "vramcast")
    return Path(tempfile.gettempdir(), f"vramcast-{os.getuid()}")


def _is_private(path: Path) -> bool:
    """Whether this is a real folder of this user that nobody else can enter."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_mine and not status.st_mode & 0o077


def variables_that_matter(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    variables = child_environment(**environment)
    return sorted((name, value) for name, value in variables.items() if name not in PASSED_ON)


def socket_path(preload: Sequence[str], environment: Mapping[str, str]) -> Path:
    identity = {
        "vramcast": str(Path(__file__).parents[1]),
        "python": [sys.executable, sys.prefix, sys.version, list(sys.flags)],
        "preload": list(preload),
        "variables": variables_that_matter(environment),
        "user": [os.getuid(), os.getgid(), sorted(os.getgroups())],
        "limits": [resource.getrlimit(number)[1] for number in LIMITS.values()],
        "cores": sorted(os.sched_getaffinity(0)),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "files": os.readlink("/proc/self/ns/mnt"),
    }
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return folder() / f"{digest[:24]}.socket"


def connect(path: Path) -> socket.socket | None:
    """A connection to a server of this user. None where none listens."""
    if not _is_private(path.parent):
        return None
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with address_of(path) as address:
            link.connect(address)
    except OSError:
        link.close()
        return None
    if peer(link)[1] != os.getuid():
        link.close()
        return None
    return link


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """A short name for a socket's path, because the kernel takes at most 107 bytes."""
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{place}/{path.name}"
    finally:
        os.close(place)


def peer(link: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel knows them."""
    told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    pid, uid, _ = PEER.unpack(told)
    return pid, uid


def connect_or_start(
    preload: Sequence[str], environment: Mapping[str, str], idle_seconds: float
) -> socket.socket | None:
    """A connection to the server, which is started if needed. None where the folder is not safe, or
    the server cannot be started."""
    path = socket_path(preload, environment)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700)
    if not _is_private(path.parent):
        return None
    try:
        with _locked(path.parent):
            found = connect(path)
            if found is None:
                path.unlink(missing_ok=True)
                _start(path, preload, environment, idle_seconds)
                found = connect(path)
            return found
    except OSError:
        return None


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _start(
    path: Path, preload: Sequence[str], environment: Mapping[str, str], idle_seconds: float
) -> None:
    # It listens from here on, and answers later if a client connects while it still imports torch.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with address_of(path) as address:
            listener.bind(address)
        os.chmod(path, 0o600)
        listener.listen(64)
        words = [str(listener.fileno()), str(path), str(idle_seconds), json.dumps(list(preload))]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vramcast.processes.kept_server", *words],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env=child_environment(**environment),
            start_new_session=True,
        )
        let_stay(process.pid)
        process.returncode = 0  # otherwise Python would warn that it still runs


def servers() -> list[Path]:
    """The sockets of all servers of this user."""
    place = folder()
    return sorted(place.glob("*.socket")) if _is_private(place) else []


def status(path: Path) -> dict[str, Any] | None:
    """The server's facts about itself. None: it has ended; {}: it still imports torch."""
    link = connect(path)
    if link is None:
        return None
    with link:
        link.settimeout(CONTROL_SECONDS)
        try:
            link.send(STATUS)
            told = link.recv(MAX_STATUS_BYTES)
            return dict(json.loads(told)) if told else None
        except TimeoutError:
            return {}
        except OSError:
            return None


def stop(path: Path) -> bool:
    """Stops a server, and says whether one was there. When this returns, it has ended together with
    its tasks."""
    link = connect(path)
    if link is None:
        path.unlink(missing_ok=True)
        return False
    with link, contextlib.suppress(OSError):
        link.settimeout(STOP_SECONDS)
        link.send(STOP)
        link.recv(1)  # returns when the server's end closes the connection
    return True


class KeptServer(ForkServer):
    """Asks the kept server. If that ends before it answers, a fresh process is asked."""

    start_seconds = START_SECONDS

    def __init__(
        self,
        preload: Sequence[str],
        environment: Mapping[str, str],
        *,
        idle_seconds: float | None = None,
    ) -> None:
        """With `idle_seconds`, a server is started if none runs. It ends after that time without
        questions."""
        super().__init__(preload, environment)
        self._idle_seconds = idle_seconds
        self._fresh: ForkServer | None = None

    def connect(self) -> bool:
        with self._starting:
            if self._link is None:
                self._launch()
            return self._link is not None

    def _is_running(self) -> bool:
        return self._link is not None

    def _launch(self) -> None:
        if self._idle_seconds is None:
            self._link = connect(socket_path(self._preload, self._environment))
        else:
            self._link = connect_or_start(self._preload, self._environment, self._idle_seconds)

    def follow(self, task: str, request: Any, **options: Any) -> Generator[Any, None, Any]:
        if self._fresh is None:
            if not self.connect():
                return (yield from self._fresh_server().follow(task, request, **options))
            try:
                return (yield from super().follow(task, request, **options))
            except TaskFailed as failure:
                is_lost = failure.kind is FailureKind.KILLED and failure.signal is None
                if failure.kind not in OF_SERVER and not is_lost:
                    raise
        return (yield from self._fresh_server().follow(task, request, **options))

    def _fresh_server(self) -> ForkServer:
        with self._starting:
            if self._fresh is None:
                self._fresh = ForkServer(self._preload, self._environment)
            return self._fresh

    def close(self) -> None:
        super().close()
        if self._fresh is not None:
            self._fresh.close()
