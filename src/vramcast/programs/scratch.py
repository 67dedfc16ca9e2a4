"""The folder for weights that a program saves. Those of killed commands go with the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "vramcast-program-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    _remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    """Of processes of this user that are gone."""
    for folder in place.glob(f"{PREFIX}*-*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name.removeprefix(PREFIX).partition("-")[0])
            is_gone = not Path(f"/proc/{pid}").exists()
            if is_gone and folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
