"""What running blocks of a fused kernel has told, kept on disk: it takes milliseconds each time.

It depends on the kernel's text, on what the kernel is given, on the GPU, on the rules in this
folder and on numpy. A file has that of one GPU and one version of the rules.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vramcast.forecast.timing.rates import peak_flops
from vramcast.hardware.gpus import Gpu
from vramcast.records.answers import Answers, path_of_answers
from vramcast.simulate.fused.launch import Launch

FOLDER = "fused"
MOST_NUMBERS = 16  # of an answer


def kept(what: str, launch: Launch, gpu: Gpu, find: Callable[[], Sequence[float]]) -> list[Any]:
    """What `find` returns, or has returned in this or an earlier process."""
    asked = lambda: [np.asarray(number).item() for number in find()]  # noqa: E731
    found: list[Any] = answers_of(gpu).find(_question(what, launch), asked)
    return found


@functools.cache
def answers_of(gpu: Gpu) -> Answers:
    about = (gpu, peak_flops(gpu, "fp32"), np.__version__)
    path = path_of_answers(FOLDER, about, Path(__file__).parent)
    return Answers(path, _is_answer)


def _question(what: str, launch: Launch) -> str:
    given = sorted(launch.given.items())
    launched = (tuple(launch.grid), launch.num_warps, sorted(launch.changed))
    asked = (what, launch.kernel.digest, given, launched, launch.tables.digest)
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:32]


def _is_answer(found: Any) -> bool:
    is_list = isinstance(found, list) and 0 < len(found) <= MOST_NUMBERS
    return is_list and all(type(number) in (int, float) for number in found)
