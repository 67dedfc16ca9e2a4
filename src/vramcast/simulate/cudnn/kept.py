"""cuDNN's answers, kept on disk: each takes milliseconds, and cuDNN need not be opened for them.

A file has those of one library, one GPU and one version of the rules in this folder.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from vramcast.hardware.gpus import Gpu
from vramcast.records.answers import Answers, path_of_answers
from vramcast.simulate.cudnn.convolution import Convolution
from vramcast.simulate.cudnn.files import Installed, installed
from vramcast.simulate.cudnn.library import SWITCH, version

FOLDER = "cudnn"
Answer = list[int] | None
Ask = Callable[[int, Convolution, Gpu, bool], Answer]


def kept(ask: Ask) -> Any:
    """`ask`, but with answers of this or an earlier process where there is one. None where cuDNN
    cannot be asked."""

    def answer(which: int, convolution: Convolution, gpu: Gpu, deterministic: bool) -> Answer:
        library = installed()
        if library is None or os.environ.get(SWITCH) == "off":
            return None
        answers = answers_of(library, gpu)
        question = repr((ask.__name__, which, deterministic, astuple(convolution)))
        if question not in answers and version() is None:
            return None
        found = answers.find(question, lambda: ask(which, convolution, gpu, deterministic))
        return found  # type: ignore[no-any-return]

    return functools.update_wrapper(functools.cache(answer), ask)


@functools.cache
def answers_of(library: Installed, gpu: Gpu) -> Answers:
    parts = sorted(library.library.parent.iterdir())
    files = [*parts, library.cublas] if library.cublas else parts
    about = [(str(file), (told := file.stat()).st_size, told.st_mtime_ns) for file in files]
    return Answers(path_of_answers(FOLDER, (about, gpu), Path(__file__).parent), _is_answer)


def _is_answer(found: Any) -> bool:
    if found is None:
        return True
    return isinstance(found, list) and all(type(size) is int and size >= 0 for size in found)
