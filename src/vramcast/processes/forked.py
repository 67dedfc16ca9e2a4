"""Runs a function in a fork of this process, whose state stays as it was.

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

# Above those that programs close or write to by number.
FIRST_DESCRIPTOR = 700
# A program may replace it.
_exit = os._exit
Result = TypeVar("Result")
# gives the result and does not return
Deliver = Callable[[Any], NoReturn]


def in_fork(function: Callable[[Deliver], Result]) -> Result:
    """What the function returns or delivers, which pickle can carry.

    Errors of vramcast are raised here as they were there. The function may deliver its result
    from anywhere, also from deep inside of a program that never returns.
    """
    return in_forks([function])[0]


def in_forks(
    functions: Sequence[Callable[[Deliver], Result]], begin: Callable[[int], None] = lambda _: None
) -> list[Result]:
    """Several at a time, as many as there are cores. Results keep the order of the functions.

    `begin` is told the place of the first of those that run next.
    """
    results: list[Result] = []
    most = os.cpu_count() or 1
    for first in range(0, len(functions), most):
        begin(first)
        running = [_start(function) for function in functions[first : first + most]]
        results += [_finish(*one) for one in running]
    return results


def _start(function: Callable[[Deliver], Any]) -> tuple[int, int]:
    """The child, and the file that gets its result."""
    # Not a pipe: processes that the program leaves behind would keep it open.
    file = os.memfd_create("result")
    child = os.fork()
    if child == 0:
        place = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
        os.close(file)
        begin_task()
        _run(function, place, os.getpid())
    return child, file


def _finish(child: int, descriptor: int) -> Any:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(descriptor, "rb") as file:
        file.seek(0)
        data = file.read()
    if not data:
        raise _without_result(status)
    try:
        kind, value = pickle.loads(data)
    except Exception:  # cut off, or of a class whose making raises
        raise _without_result(status) from None
    if kind == "error":
        raise value
    return value


def _run(function: Callable[[Deliver], Any], place: int, own_pid: int) -> NoReturn:
    def deliver(result: Any, kind: str = "result") -> NoReturn:
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
