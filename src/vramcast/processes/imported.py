"""Which installed libraries a task imported, and whether it would have imported the same itself.

A kept server imports them once for the next tasks of the family. A task that changes environment
variables, or puts a folder on sys.path that has a module of the same name, might have imported
something else: it is run again in a fresh process.
"""

import json
import os
import sys
import sysconfig
from typing import Any

MAX_NOTE_BYTES = 1 << 20


def names() -> list[str]:
    """The modules of installed packages, in the order in which they were imported."""
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    inside = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
    files = [(name, getattr(module, "__file__", None)) for name, module in [*sys.modules.items()]]
    # not relative paths: it is unknown to which folder they refer
    named = [(name, file) for name, file in files if isinstance(file, str) and os.path.isabs(file)]
    return [name for name, file in named if os.path.realpath(file).startswith(inside)]


def changed_variables(before: dict[str, str]) -> dict[str, str | None]:
    """The variables that differ from the given environment; None for those that are gone."""
    now = dict(os.environ)
    every = before.keys() | now.keys()
    return {name: now.get(name) for name in every if before.get(name) != now.get(name)}


def change_variables(changes: dict[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Watch:
    """Watches a task from its beginning to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._environment, self._libraries = order["environment"], order.get("libraries")
        self._note = order.get("note")
        if self._libraries is not None:
            change_variables(self._libraries["variables"])
        self._path, self._before = list(sys.path), set(sys.modules)

    def is_suited(self) -> bool:
        """Whether the libraries that were imported beforehand are those that the task would have
        imported."""
        if self._libraries is None:
            return True
        is_same = changed_variables(self._environment) == self._libraries["variables"]
        return is_same and not self._are_hidden(self._libraries["modules"])

    def write_note(self) -> None:
        """Writes the task's imports for the server, which reads them when the task has ended."""
        if self._note is None:
            return
        modules = [name for name in names() if name not in self._before]
        if self._are_hidden(modules):
            return
        note = {"modules": modules, "variables": changed_variables(self._environment)}
        data = json.dumps(note).encode()
        if modules and len(data) <= MAX_NOTE_BYTES:
            os.pwrite(self._note, data, 0)

    def _are_hidden(self, modules: list[str]) -> bool:
        """Whether a folder that was put on sys.path has another module with one of these names."""
        libraries = {name.partition(".")[0] for name in modules}
        if [folder for folder in sys.path if folder in self._path] != self._path:
            return True
        return any(
            file.partition(".")[0] in libraries
            for folder in set(sys.path).difference(self._path)
            for file in _files_in(folder)
        )


def _files_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def read_note(file: int) -> dict[str, Any] | None:
    """The note in this file. None if it is no note, because user code may have written into it."""
    try:
        note = json.loads(os.pread(file, MAX_NOTE_BYTES, 0))
        modules, variables = note["modules"], note["variables"]
        if not isinstance(modules, list) or not isinstance(variables, dict):
            return None
        texts = [*modules, *variables, *(v for v in variables.values() if v is not None)]
        return note if modules and all(isinstance(text, str) for text in texts) else None
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return None
