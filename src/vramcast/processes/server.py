"""The fork server: it imports torch once and forks a fresh process for every task.

`ask.ForkServer` starts it: `python -m vramcast.processes.server LINK PARENT MODULES`. A task comes
on LINK as three descriptors: the order (JSON), the connection, the log. CUDA cannot be used after a
fork, so it must not be started here.

For every task a guard is forked, which forks the child. When the child ends, the asking side hangs
up, or PARENT dies, the guard kills every process that the child has started, in whatever session,
and reports the exit status.
"""

import contextlib
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from vramcast.processes import child, lifetime
from vramcast.processes.channel import Channel

TASK = b"!"
HARMLESS = ("torch", "vramcast")  # importing these does not start CUDA


class Server:
    """Forks a guard for every task that comes on one of its links."""

    def __init__(self, num_threads: int | None) -> None:
        self.num_threads = num_threads
        # by their descriptors: the asking sides, with the handles of their processes; and the
        # guards
        self._links: dict[int, tuple[socket.socket, int]] = {}
        self._guards: dict[int, int] = {}
        self.num_tasks = 0

    @property
    def has_links(self) -> bool:
        return bool(self._links)

    @property
    def is_idle(self) -> bool:
        return not self._links and not self._guards

    def add(self, link: socket.socket, parent: int) -> None:
        self._links[link.fileno()] = (link, parent)

    def wait(self, *others: int, timeout_seconds: float | None = None) -> list[int]:
        """Waits until something happens, and handles it. Returns the descriptors that were
        ready."""
        parents = {parent: number for number, (_, parent) in self._links.items()}
        watched = [*self._links, *parents, *self._guards, *others]
        ready, _, _ = select.select(watched, [], [], timeout_seconds)
        for handle in ready:
            if handle in self._guards:
                self._reap(handle)
            elif handle in parents:
                self._drop(parents[handle])
            elif handle in self._links:
                self._receive(handle)
        return list(ready)

    def close(self) -> None:
        for number in list(self._links):
            self._drop(number)

    def other_children(self) -> list[int]:
        return []

    def control(self, link: socket.socket, message: bytes) -> None:
        """Handles a message that is no task."""

    def _reap(self, handle: int) -> None:
        os.waitpid(self._guards.pop(handle), 0)
        os.close(handle)
        # user code may have killed the guard, whose children are now ours
        lifetime.end_children(keep=[*self._guards.values(), *self.other_children()])

    def _drop(self, number: int) -> None:
        if number in self._links:
            link, parent = self._links.pop(number)
            link.close()
            os.close(parent)

    def _receive(self, number: int) -> None:
        link, parent = self._links[number]
        try:
            message, descriptors, _, _ = socket.recv_fds(link, 1, 4, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            message, descriptors = b"", []
        if not message:
            self._drop(number)
        elif message != TASK:
            self.control(link, message)
        else:
            self.num_tasks += 1
            self.begin(descriptors, parent)
        for descriptor in descriptors:
            os.close(descriptor)

    def begin(self, descriptors: list[int], parent: int, **more: Any) -> int:
        """Forks a guard, and returns its handle. `more` is added to the order."""
        pid = os.fork()
        if pid == 0:
            parent = os.dup(parent)
            self.close()
            guard(descriptors, parent, {"num_threads": self.num_threads, **more})
        handle = os.pidfd_open(pid)
        self._guards[handle] = pid
        return handle


def guard(descriptors: list[int], parent: int, more: dict[str, Any]) -> NoReturn:
    order_file, channel, log = descriptors[:3]
    with contextlib.suppress(BaseException):
        lifetime.adopt_orphans()
        with open(order_file, "rb") as file:
            order: dict[str, Any] = {**json.load(file), **more}
        connection = socket.socket(fileno=channel)
        # otherwise the asking side has hung up, and nobody waits for this task
        if not select.select([connection], [], [], 0)[0]:
            _guard_child(order, connection, log, parent)
    os._exit(0)


def _guard_child(order: dict[str, Any], connection: socket.socket, log: int, parent: int) -> None:
    secret, own_pid = bytes.fromhex(order.pop("secret")), os.getpid()
    channel = Channel(connection, secret)
    channel.send(started=own_pid)  # before the child can send progress
    pid = os.fork()
    if pid == 0:
        child.run(order, Channel(connection, secret), log, own_pid)
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno(), parent], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lifetime.end_children()
    channel.send(ended=status)


def import_all(modules: list[str]) -> int | None:
    """Imports the modules. Returns the number of threads that torch may use in a child.

    Here it may use only one: OpenMP's threads do not survive a fork, and a child would wait for
    them.
    """
    num_threads = None
    # Objects of modules stay alive, and looking through them again and again takes a tenth of the
    # time.
    gc.disable()
    for name in modules:
        found = pkgutil.resolve_name(name)
        if ":" in name:
            found()
        torch = sys.modules.get("torch")
        if torch is not None and num_threads is None:
            num_threads = torch.get_num_threads()
            torch.set_num_threads(1)
    gc.freeze()
    gc.enable()
    return num_threads


def has_started_cuda() -> bool:
    """Whether CUDA was started. Some libraries, such as bitsandbytes, do that when they are
    imported. torch tells it only in a fork."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(pid, 0)[1] != 0


def main() -> NoReturn:
    link, parent_pid, modules = sys.argv[1:]
    lifetime.end_with_the_parent(int(parent_pid))
    lifetime.adopt_orphans()
    names = json.loads(modules)
    num_threads = import_all(names)
    harmless = [name for name in names if name.partition(".")[0] in HARMLESS]
    if harmless != names and has_started_cuda():
        os.execv(sys.executable, [*sys.orig_argv[:-1], json.dumps(harmless)])
    # The kernel's signal would come when the thread that started this process ends. From here on
    # the parent process is watched instead.
    server = Server(num_threads)
    server.add(socket.socket(fileno=int(link)), os.pidfd_open(int(parent_pid)))
    lifetime.outlive_the_parent()
    while server.has_links:
        server.wait()
    # there is nothing to clean up, and torch's own clean-up takes long
    os._exit(0)


if __name__ == "__main__":
    main()
