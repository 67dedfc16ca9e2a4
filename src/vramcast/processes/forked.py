"""Runs a function in a fork, so that the state of this process stays as it was.

For code that changes its process for good, such as a user's whole program.
"""

import contextlib
import fcntl
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from vramcast.errors import VramcastError
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.processes.lifetime import begin_task, signal_name

# Above the descriptors that programs close or write to by number.
FIRST_DESCRIPTOR = 700
# the real function, because a program may replace it
_exit = os._exit
Result = TypeVar("Result")
# sends the result and does not return
Deliver = Callable[[Any], NoReturn]
# the file for the result of this process, and its process id
_own = -1, -1


def in_fork(function: Callable[[Deliver], Result]) -> Result:
    """The result that the function returns or delivers; it must be picklable.

    Errors of vramcast are raised here as they were there. The function may deliver its result from
    anywhere, even from deep inside a program that never returns.
    """
    return in_forks([function])[0]


def in_forks(
    functions: Sequence[Callable[[Deliver], Result]], begin: Callable[[int], None] = lambda _: None
) -> list[Result]:
    """Runs several at a time, as many as there are cores. Results keep the order of the functions.

    `begin` is called with the index of the first of those that run next.
    """
    results: list[Result] = []
    most = os.cpu_count() or 1
    for first in range(0, len(functions), most):
        begin(first)
        running = [_start(function) for function in functions[first : first + most]]
        results += [finish(*one) for one in running]
    return results


def _start(function: Callable[[Deliver], Any]) -> tuple[int, int]:
    """The child's process id, and the file for its result."""
    # not a pipe, which processes that the program leaves behind would keep open
    file = os.memfd_create("result")
    child = os.fork()
    if child == 0:
        take_on_result(file)
        _run(function)
    return child, file


def take_on_result(file: int) -> None:
    """From now on this process runs the task, and its result goes into this file."""
    global _own
    _own = high(file), os.getpid()
    begin_task()


def high(descriptor: int) -> int:
    """Moves it to where programs do not look."""
    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
    os.close(descriptor)
    return found


def finish(child: int, descriptor: int) -> Any:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(descriptor, "rb") as file:
        file.seek(0)
        data = file.read()
    if not data:
        raise _without_result(status)
    try:
        kind, value = pickle.loads(data)
    except Exception:  # incomplete, or of a class that cannot be unpickled
        raise _without_result(status) from None
    if kind == "error":
        raise value
    return value


def _run(function: Callable[[Deliver], Any]) -> NoReturn:
    def deliver(result: Any, kind: str = "result") -> NoReturn:
        place, own_pid = _own
        if os.getpid() == own_pid:
            data = pickle.dumps((kind, result), protocol=pickle.HIGHEST_PROTOCOL)
            with open(place, "r+b") as file:
                file.truncate(0)
                file.write(data)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        _exit(0)

    try:
        deliver(function(deliver))
    except VramcastError as error:
        deliver(error, "error")
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
            sys.stderr.flush()
    _exit(1)


def _without_result(status: int) -> TaskFailed:
    if status >= 0:
        what = f"The program ended its process with exit code {status}."
        return TaskFailed(FailureKind.EXITED, what)
    name = signal_name(-status)
    more = ""
    if name == "SIGKILL":
        more = " The kernel does that when the machine's own memory runs out (see dmesg)."
    return TaskFailed(FailureKind.KILLED, f"The program was ended by {name}.{more}", signal=name)
