"""A user's error as the user needs it: their own lines and what went wrong, no other frames."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from traceback import FrameSummary

OWN_ROOT = str(Path(__file__).absolute().parents[1])
LIBRARY_FOLDERS = ("site-packages", "dist-packages")
MAX_FRAMES = 10
MAX_CAUSES = 3


def user_traceback(error: BaseException, hide_roots: Sequence[str | Path] = ()) -> str:
    """The user's frames, oldest first, one a line, then the exception's type and message.

    A frame is `file.py:12 in build: loss = model(x)`. Frames of vramcast, of Python itself and of
    `hide_roots` are never shown. Of installed packages only the frame that raised is shown: it
    says which part of the library refused.
    """
    hidden = [OWN_ROOT, *(str(root) for root in hide_roots)]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _is_machinery(frame.filename, hidden)
    ]
    shown = [frame for frame in frames if not _is_library(frame.filename)][-MAX_FRAMES:]
    if frames and _is_library(frames[-1].filename):
        shown.append(frames[-1])
    return "\n".join([*map(_line, shown), exception_line(error), *_causes(error)])


def exception_line(error: BaseException) -> str:
    message = str(error).strip()
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def shown_path(filename: str) -> str:
    """Shortened below the current folder and inside an installed package."""
    for folder in LIBRARY_FOLDERS:
        _, found, rest = filename.rpartition(f"{os.sep}{folder}{os.sep}")
        if found:
            return rest
    here = os.getcwd() + os.sep
    return filename.removeprefix(here)


def _causes(error: BaseException) -> list[str]:
    lines: list[str] = []
    cause = error.__cause__
    while cause is not None and len(lines) < MAX_CAUSES:
        lines.append(f"caused by {exception_line(cause)}")
        cause = cause.__cause__
    return lines


def _line(frame: FrameSummary) -> str:
    text = f": {frame.line}" if frame.line else ""
    return f"{shown_path(frame.filename)}:{frame.lineno} in {frame.name}{text}"


def _is_library(filename: str) -> bool:
    return any(folder in Path(filename).parts for folder in LIBRARY_FOLDERS)


def _is_machinery(filename: str, hidden: Sequence[str]) -> bool:
    if filename.startswith(("<frozen ", "<string>")) or _is_below(filename, hidden):
        return True
    return not _is_library(filename) and _is_below(
        filename, [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    )


def _is_below(filename: str, roots: Sequence[str]) -> bool:
    # With the separator, because vramcast_zoo does not lie below vramcast.
    return any(
        filename.startswith(root.rstrip(os.sep) + os.sep) or filename == root for root in roots
    )
