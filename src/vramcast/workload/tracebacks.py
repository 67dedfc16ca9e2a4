"""A user's error as the user needs it: their own lines and what went wrong, no other frames."""

import os
import re
import traceback
from functools import cache
from pathlib import Path
from traceback import FrameSummary

# With the separator, so that vramcast_zoo does not count as a part of vramcast.
OWN_ROOT = f"{Path(__file__).absolute().parents[1]}{os.sep}"
LIBRARY = re.compile(r".*/(site|dist)-packages/")
MAX_FRAMES = 10
MAX_CAUSES = 3
MAYBE_A_FAULT = (
    "Innermost last. If it does run on a real GPU, it is a fault of the simulated one: "
    "docs/limits.md has what is known."
)


def user_traceback(error: BaseException) -> str:
    """The user's frames, oldest first, one a line, then the exception's type and message.

    A frame is `file.py:12 in build: loss = model(x)`. Those of vramcast and of Python itself are
    left out. Of installed packages only the one that raised is shown: it says which part refused.
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not _is_hidden(one)]
    shown = [one for one in frames if not _is_library(one)][-MAX_FRAMES:]
    if frames and _is_library(frames[-1]):
        shown.append(frames[-1])
    return "\n".join([*map(_line, shown), exception_line(error), *_causes(error)])


def exception_line(error: BaseException) -> str:
    message = exception_text(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def exception_text(error: BaseException) -> str:
    try:
        return str(error).partition("\nException raised from ")[0].strip()
    except BaseException:  # a user's __str__ may itself raise
        return ""


def shown_path(filename: str) -> str:
    """The path, shortened if it is below the current folder or inside an installed package."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:
        here = ""  # the program has removed its folder
    return LIBRARY.sub("", os.path.normpath(filename)).removeprefix(here)


def _causes(error: BaseException) -> list[str]:
    lines: list[str] = []
    cause = error.__cause__
    while cause and len(lines) < MAX_CAUSES:
        lines.append(f"caused by {exception_line(cause)}")
        cause = cause.__cause__
    return lines


def _line(frame: FrameSummary) -> str:
    text = f": {frame.line}" if frame.line else ""
    return f"{shown_path(frame.filename)}:{frame.lineno} in {frame.name}{text}"


def _is_library(frame: FrameSummary) -> bool:
    return LIBRARY.match(frame.filename) is not None


def _is_hidden(frame: FrameSummary) -> bool:
    if frame.filename.startswith(("<frozen ", "<string>", OWN_ROOT)):
        return True
    return frame.filename.startswith(_python_roots()) and not _is_library(frame)


@cache
def _python_roots() -> tuple[str, ...]:
    import sysconfig  # slow to import

    return tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
