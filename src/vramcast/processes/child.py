"""The process in which one task runs: it sends progress and the answer, and ends."""

import contextlib
import faulthandler
import os
import pkgutil
import sys
import traceback
from typing import Any, NoReturn

from vramcast.errors import VramcastError
from vramcast.processes.channel import Channel, error_to_dict
from vramcast.processes.imported import Watch
from vramcast.processes.lifetime import begin_task, end_with_the_parent, take_on
from vramcast.text import printable

MAX_MESSAGE_CHARACTERS = 8000
STACK_SLOTS = 70_000  # just over half a mebibyte: a whole one is taken
# the file into which this process prints, if that is kept
_log_file: str | None = None


def run(order: dict[str, Any], channel: Channel, log: int, parent: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        end_with_the_parent(parent)
        begin_task()
        _print_into(log)
        _stand_where_it_was_asked(order)
        code = _answer(order, channel)
    except BaseException:
        with contextlib.suppress(Exception):  # the workload may have closed its output
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # this process must not run the parent's code after the fork
        os._exit(code)


def _print_into(log: int) -> None:
    """Keeps what user code prints, even if it is killed."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    printed: Any = sys.stdout
    printed.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable(all_threads=False)


def _stand_where_it_was_asked(order: dict[str, Any]) -> None:
    global _log_file
    _log_file = order["log"]
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    take_on(order["umask"], order["limits"])
    # at the end, so that no module in the user's folder hides one of Python's
    sys.path += [folder for folder in order["path"] if folder not in sys.path]
    # the real arguments are not meant for a user's argument parser
    sys.argv[:] = ["vramcast"]
    if order["num_threads"] is not None:
        sys.modules["torch"].set_num_threads(order["num_threads"])


def cut(message: str) -> str:
    """Both ends of a long message. The run's log has the whole message, if there is a log."""
    where = ""
    if len(message) > MAX_MESSAGE_CHARACTERS and _log_file is not None:
        print(printable(message), file=sys.stderr, flush=True)
        where = f"; all are in {_log_file}"
    return printable(message, MAX_MESSAGE_CHARACTERS, where)


def _answer(order: dict[str, Any], channel: Channel) -> int:
    watch = Watch(order)
    message, code = _outcome(order, channel)
    if not watch.is_suited():
        message, code = {"again": True}, 0
    else:
        watch.write_note()
    if message:
        channel.send(**message)
    return code


def _outcome(order: dict[str, Any], channel: Channel) -> tuple[dict[str, Any], int]:
    try:
        task = pkgutil.resolve_name(order["task"])
        answer = task(order["request"], lambda news: channel.send(progress=news))
        return {"answer": answer}, 0
    except VramcastError as error:
        error.message = cut(error.message)
        return {"error": error_to_dict(error)}, 0
    except SystemExit as leaving:
        if isinstance(leaving.code, int | None):
            return {}, (leaving.code or 0) & 0xFF
        print(leaving.code, file=sys.stderr)
        return {}, 1
    except Exception as error:
        # this works also for exceptions whose str() fails
        text = "".join(traceback.format_exception_only(error)).strip()
        traceback.print_exc()
        return {"crashed": cut(text)}, 1


# Python takes memory for calls by 16 KiB and returns them at once, at their edge with every call.
# What needs much is given more, and room is left for the calls below it.
_outcome.__code__ = _outcome.__code__.replace(co_stacksize=STACK_SLOTS)
