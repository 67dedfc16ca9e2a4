"""A temporary folder. Folders that killed commands left are removed by the next one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "vramcast-program-"
# A user's file that the program opened for writing is kept under a name with this ending.
SET_ASIDE = ".set-aside-by-vramcast"
LIST = "set-aside"
# The real function: os.rename is replaced while a program runs.
_rename = os.rename


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    _remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        put_back(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    """Removes folders of this user's processes that have ended."""
    for folder in place.glob(f"{PREFIX}*-*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name.removeprefix(PREFIX).partition("-")[0])
            is_gone = not Path(f"/proc/{pid}").exists()
            if is_gone and folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                put_back(folder)
                shutil.rmtree(folder, ignore_errors=True)


def set_aside(path: str, folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / LIST).open("a") as file:
        file.write(path + "\n")
        file.flush()
        _rename(path, path + SET_ASIDE)


def put_back(folder: Path, *, for_new: bool = True) -> None:
    """Puts the files back under their names. With `for_new`, also where a new file has taken the
    place, which is replaced."""
    with contextlib.suppress(OSError):
        for path in (folder / LIST).read_text().splitlines():
            with contextlib.suppress(OSError):
                if for_new or not os.path.lexists(path):
                    _rename(path + SET_ASIDE, path)
                else:
                    os.unlink(path + SET_ASIDE)
