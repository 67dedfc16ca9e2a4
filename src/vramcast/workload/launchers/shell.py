"""Scripts of a shell: they are not run. The lines in them that may start the training are shown."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vramcast.errors import WorkloadError
from vramcast.workload.launch_line import Program

SHELLS = ("bash", "sh", "zsh")
STARTS_TRAINING = re.compile(
    r"^\s*(\w+=\S*\s+)*(exec\s+|srun\s.*?)?((python[\d.]*|torchrun|accelerate|deepspeed|uv)\s.*)"
)
MOST_LINES, MOST_BYTES = 3, 1 << 20


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in SHELLS or words[0].endswith(".sh")


def read(words: Sequence[str], so_far: Program) -> NoReturn:
    script = next((word for word in words if os.path.isfile(word)), None)
    lines = _lines(Path(script)) if script else []
    if not lines and "-c" in words[:-1]:
        lines = [words[words.index("-c") + 1]]
    shown = "".join(f"\n  vramcast ... -- {line}" for line in lines[:MOST_LINES])
    raise WorkloadError(
        f"`{shlex.join(words)}` is a line of a shell, which may do anything: it is not run.",
        "Give the line in it that starts the training" + (f", such as{shown}" if shown else "."),
    )


def _lines(script: Path) -> list[str]:
    with script.open("rb") as file:
        text = file.read(MOST_BYTES).decode(errors="replace")
    whole = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    found = (STARTS_TRAINING.match(line) for line in whole)
    return [match[3].strip() for match in found if match]
