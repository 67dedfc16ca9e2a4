"""Scripts of a shell are not run: the lines in them that may start the training are shown."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NoReturn

from vramcast.errors import WorkloadError
from vramcast.workload.launch_line import Program

STARTS_TRAINING = re.compile(
    r"^\s*(?:\w+=\S*\s+)*(?:exec\s+|srun\s.*?)?((?:python[\d.]*|torchrun|accelerate|deepspeed|uv)\s.*)",
    re.MULTILINE,
)
MOST_LINES = 3


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in ("bash", "sh", "zsh") or words[0].endswith(".sh")


def read(words: Sequence[str], so_far: Program) -> NoReturn:
    text = ""
    if script := next(filter(os.path.isfile, words), None):
        with open(script, errors="replace") as file:
            text = re.sub(r"\s*\\\n\s*", " ", file.read())
    lines = STARTS_TRAINING.findall(text)[:MOST_LINES]
    raise WorkloadError(
        f"A script of a shell ({' '.join(words)}) is not run.",
        "\n  vramcast ... -- ".join(["Give the line in it that starts the training:", *lines]),
    )
