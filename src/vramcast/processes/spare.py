"""A fork of this process that waits at a point of a program, to go on there if it is wanted.

A second run of the program from that point needs no imports and no set-up.
"""

import contextlib
import os
import random
import signal
import stat
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from vramcast.processes.forked import finish, high, take_on_result
from vramcast.processes.lifetime import end_with_the_parent

GO_ON = b"g"
# Threads of libraries that see to forks themselves. Others would be missing in the fork, with the
# locks that they held.
SAFE_THREADS = {"jemalloc_bg_thd"}
# the real functions, because a program may replace them
_fork, _exit = os.fork, os._exit


def can_be_forked(sockets_before: Collection[int]) -> bool:
    """Whether nothing of this process would be missing in a fork, or shared with it: threads,
    processes that it started, connections other than those that it had before."""
    if threading.active_count() > 1:
        return False
    own = str(os.getpid())
    with contextlib.suppress(OSError):  # a thread ends now
        for thread in Path("/proc/self/task").iterdir():
            is_safe = thread.name == own or (thread / "comm").read_text().strip() in SAFE_THREADS
            if not is_safe or (thread / "children").read_text():
                return False
        return sockets() <= {*sockets_before}
    return False


def sockets() -> set[int]:
    """The descriptors of this process that are sockets."""
    return {file for file, mode in _open_files().items() if stat.S_ISSOCK(mode)}


def _open_files() -> dict[int, int]:
    """The descriptors of this process, and what kind each is."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the list itself
            found[int(name)] = os.fstat(int(name)).st_mode
    return found


class Spare:
    def __init__(self, child: int, file: int, order: int) -> None:
        self._child, self._file, self._order = child, file, order

    def result(self) -> Any:
        """Lets it go on, and returns what it delivers. Its errors are raised here. Files that it
        reads are afterwards where they were, because this process may go on too."""
        places = _places()
        os.write(self._order, GO_ON)
        try:
            return finish(self._child, self._file)
        finally:
            _put_at(places)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)


def fork_spare() -> Spare | None:
    """Forks this process. In the fork this returns None, once it is to go on."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    file, wait, order = map(high, (os.memfd_create("result"), *os.pipe()))
    own, state = os.getpid(), random.getstate()
    child = _fork()
    if child:
        os.close(wait)
        return Spare(child, file, order)
    os.close(order)
    _wait(wait, own)
    random.setstate(state)  # Python has drawn another one
    take_on_result(file)
    return None


def _wait(descriptor: int, parent: int) -> None:
    """Until it is wanted. Files that it reads are where they were, although the parent reads on."""
    try:
        end_with_the_parent(parent)
        places = _places()
        if os.read(descriptor, 1) != GO_ON:
            _leave()
        os.close(descriptor)
        _put_at(places)
    except BaseException:
        _leave()


def _places() -> dict[int, int]:
    regular = [file for file, mode in _open_files().items() if stat.S_ISREG(mode)]
    return {file: os.lseek(file, 0, os.SEEK_CUR) for file in regular}


def _put_at(places: dict[int, int]) -> None:
    for file, place in places.items():
        with contextlib.suppress(OSError):  # closed since
            os.lseek(file, place, os.SEEK_SET)


def _leave() -> NoReturn:
    _exit(1)
