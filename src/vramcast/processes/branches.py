"""Branches of a kept server: forks that have imported the libraries of a family of tasks."""

import contextlib
import gc
import json
import os
import pkgutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vramcast.processes import imported, lifetime
from vramcast.processes.loaded_files import LoadedFiles
from vramcast.processes.server import TASK, Server

READY = b"r"
MAX_BRANCHES = 3


@dataclass
class Branch:
    link: socket.socket
    pid: int
    is_ready: bool = False


def grow(
    note: dict[str, Any], request: Any, leave: Callable[[], None], num_threads: int | None
) -> Branch:
    """Forks a branch, which imports the libraries. `leave` closes the server's descriptors in
    it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return Branch(ours, pid)
    with contextlib.suppress(BaseException):
        ours.close()
        leave()
        lifetime.end_with_the_parent(server)
        _serve(theirs, note, request, num_threads)
    os._exit(0)


def _serve(
    link: socket.socket, note: dict[str, Any], request: Any, num_threads: int | None
) -> None:
    before, modules_before = dict(os.environ), imported.names()
    gc.disable()
    pkgutil.resolve_name(request["task"])(request["request"], note["modules"])
    gc.freeze()
    gc.enable()
    # The branch is not used if it has other threads, which do not survive a fork; if variables that
    # the task had set were missing when the libraries were imported here; or if other modules were
    # imported than in the task.
    has_threads = len(os.listdir("/proc/self/task")) > 1
    has_others = not set(imported.names()) <= {*modules_before, *note["modules"]}
    if has_threads or has_others or imported.changed_variables(before) != note["variables"]:
        return
    server = _BranchServer(num_threads, note)
    server.add(link, os.pidfd_open(os.getppid()))
    link.send(READY)
    while server.has_links:
        server.wait()


class _BranchServer(Server):
    def __init__(self, num_threads: int | None, note: dict[str, Any]) -> None:
        super().__init__(num_threads)
        self._note = note
        self._files = LoadedFiles()

    def begin(self, descriptors: list[int], parent: int, **more: Any) -> int:
        if self._files.have_changed():
            # The connection ends with this process, and the asking side uses a fresh one.
            os._exit(0)
        # the fourth descriptor is that of the asking process, not of the server that passed the
        # task on
        return super().begin(descriptors[:3], descriptors[3], libraries=self._note, **more)


class Branches:
    def __init__(self) -> None:
        self._branches: dict[str, Branch] = {}
        # for each running task, by its guard's handle: the family, its request, and the file for
        # its imports
        self._notes: dict[int, tuple[str, Any, int]] = {}

    def pids(self) -> list[int]:
        return [branch.pid for branch in self._branches.values()]

    def descriptors(self) -> list[int]:
        return [branch.link.fileno() for branch in self._branches.values()]

    def close(self) -> None:
        for family in list(self._branches):
            self._branches.pop(family).link.close()

    def hand_on(self, family: str, descriptors: list[int], parent: int) -> bool:
        branch = self._branches.get(family)
        if branch is None or not branch.is_ready:
            return False
        try:
            socket.send_fds(branch.link, [TASK], [*descriptors, parent])
        except OSError:
            self.remove(family)
            return False
        return True

    def expect(self, guard: int, family: str, request: Any, note: int) -> None:
        self._notes[guard] = (family, request, note)

    def ended(self, guard: int) -> tuple[str, Any, dict[str, Any]] | None:
        """The family, the request and the imports of a task that has ended, if a branch is worth
        it."""
        if guard not in self._notes:
            return None
        family, request, file = self._notes.pop(guard)
        note = imported.read_note(file)
        os.close(file)
        return (family, request, note) if note and family not in self._branches else None

    def add(self, family: str, branch: Branch) -> None:
        while len(self._branches) >= MAX_BRANCHES:
            self.remove(next(iter(self._branches)))
        self._branches[family] = branch

    def hear(self, ready: list[int]) -> None:
        for family, branch in list(self._branches.items()):
            if branch.link.fileno() in ready:
                if branch.link.recv(1) == READY:
                    branch.is_ready = True
                else:
                    self.remove(family)

    def remove(self, family: str) -> None:
        branch = self._branches.pop(family)
        branch.link.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(branch.pid, 0)


def order_in(file: int) -> dict[str, Any]:
    return dict(json.loads(os.pread(file, os.fstat(file).st_size, 0)))
