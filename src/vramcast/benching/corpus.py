"""The data where none are given: Python's own standard library, which is on every machine, made into one file once and kept.

Its bytes depend on the Python version: its hash is in every result, and runs on different ones are not compared.
"""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path

from vramcast.benching.data import DELIMITER
from vramcast.errors import EnvironmentProblem
from vramcast.records.store import cache_folder, write_atomically
from vramcast.units import MiB

# not the language's own, tables, or packed separately by some distributions
LEFT_OUT = {
    *(
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "encodings",
        "pydoc_data",
        "lib2to3",
        "distutils",
        "turtledemo",
    ),
    *("ensurepip", "tkinter", "__pycache__"),
}
FEWEST_BYTES = MiB


def default_corpus() -> Path:
    path = cache_folder() / "corpora" / f"python-{platform.python_version()}.bin"
    if not path.exists():
        write_atomically(path, standard_library_text(Path(sysconfig.get_path("stdlib"))))
    return path


def standard_library_text(folder: Path) -> bytes:
    """The sources one after another, in the order of their names, delimited as documents."""
    files = sorted(
        path.relative_to(folder)
        for path in folder.rglob("*.py")
        if not LEFT_OUT & set(path.relative_to(folder).parts[:-1])
    )
    text = bytes([DELIMITER]).join(
        (folder / file).read_bytes().replace(bytes([DELIMITER]), b"") for file in files
    )
    if len(text) < FEWEST_BYTES:
        raise EnvironmentProblem(
            f"Python's standard library in {folder} has only {len(text):,} bytes of sources: too few to train on.",
            "Give a file of your own with --data.",
        )
    return text
