"""A temporary folder. Those of killed commands go with the next one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "vramcast-program-"
# A file of the user's that the program opened for writing waits under this ending.
SET_ASIDE = ".set-aside-by-vramcast"
LIST = "set-aside"
# A program's is watched.
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
    """Of processes of this user that are gone."""
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
    """Also for files that have come in their place, where these are to go."""
    with contextlib.suppress(OSError):
        for path in (folder / LIST).read_text().splitlines():
            with contextlib.suppress(OSError):
                if for_new or not os.path.lexists(path):
                    _rename(path + SET_ASIDE, path)
                else:
                    os.unlink(path + SET_ASIDE)
