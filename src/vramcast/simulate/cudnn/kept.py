"""cuDNN's answers, kept on disk: each takes milliseconds, and cuDNN need not be opened for them.

A file has those of one library, one GPU and one version of the rules in this folder.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.hardware.gpus import Gpu
from vramcast.records.store import cache_folder, check_trusted, read_text, write_atomically
from vramcast.simulate.cudnn.convolution import Convolution
from vramcast.simulate.cudnn.files import Installed, installed
from vramcast.simulate.cudnn.library import SWITCH, version

FOLDER = "cudnn"
MOST_ANSWERS = 20_000
Answer = list[int] | None
Answers = dict[str, Answer]
Ask = Callable[[int, Convolution, Gpu, bool], Answer]


@dataclass
class _File:
    path: Path
    known: Answers
    fresh: Answers = field(default_factory=dict)


_files: dict[Gpu, _File] = {}


def kept(ask: Ask) -> Any:
    """`ask`, but with answers of this or an earlier process where there is one. None where cuDNN
    cannot be asked."""

    def answer(which: int, convolution: Convolution, gpu: Gpu, deterministic: bool) -> Answer:
        library = installed()
        if library is None or os.environ.get(SWITCH) == "off":
            return None
        if gpu not in _files:
            path = _path(library, gpu)
            _files[gpu] = _File(path, _read(path))
        file = _files[gpu]
        question = repr((ask.__name__, which, deterministic, astuple(convolution)))
        if question not in file.known and version() is not None:
            found = ask(which, convolution, gpu, deterministic)
            file.known[question] = file.fresh[question] = found
        return file.known.get(question)

    return functools.update_wrapper(functools.cache(answer), ask)


def keep() -> None:
    """Writes the new answers to disk. If that fails, cuDNN will be asked again next time."""
    for file in _files.values():
        fresh, file.fresh = file.fresh, {}
        if not fresh:
            continue
        answers = _read(file.path) | fresh  # other processes write too
        with suppress(VramcastError):
            content = json.dumps(answers if len(answers) <= MOST_ANSWERS else fresh)
            write_atomically(file.path, content)


def _path(library: Installed, gpu: Gpu) -> Path:
    parts = sorted(library.library.parent.iterdir())
    files = [*parts, library.cublas] if library.cublas else parts
    about = [(str(file), (told := file.stat()).st_size, told.st_mtime_ns) for file in files]
    digest = hashlib.sha256(repr((about, gpu)).encode())
    for rules in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(rules.read_bytes())
    return cache_folder() / FOLDER / f"{digest.hexdigest()[:16]}.json"


def _read(path: Path) -> Answers:
    """The answers in this file. Empty if another user could have written it, or if it has no such
    content."""
    try:
        check_trusted(path)
        found = json.loads(read_text(path))
    except (VramcastError, OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {question: answer for question, answer in found.items() if _is_answer(answer)}


def _is_answer(found: Any) -> bool:
    if found is None:
        return True
    return isinstance(found, list) and all(type(size) is int and size >= 0 for size in found)
