"""The files that this process has loaded, and whether one of them has changed since."""

import os
import sys
from pathlib import Path


class LoadedFiles:
    """The files of everything that was imported so far, and of the shared libraries."""

    def __init__(self) -> None:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        for line in Path("/proc/self/maps").read_text().splitlines():
            files.add(line[line.find("/") :] if "/" in line else None)
        self._stamps = {file: _stamp(file) for file in files if file and os.path.isabs(file)}

    def have_changed(self) -> bool:
        return any(_stamp(file) != before for file, before in self._stamps.items())


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
