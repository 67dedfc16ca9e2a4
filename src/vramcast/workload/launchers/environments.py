"""`uv run`, `conda run` and the like: the line after them, in the interpreter that they choose."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import WorkloadError
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program

# Options without a value.
WITHOUT_VALUE = {
    "uv": (
        r"--all-.*|--no-(?!extra$|group$|.*-package$).*|--(active|compile-bytecode|exact|frozen"
        r"|gui-script|isolated|locked|managed-python|native-tls|offline|only-dev|quiet|refresh"
        r"|reinstall|script|system-certs|upgrade|verbose)|-[nqsvU]+"
    ),
    "conda": r"--(no-capture-output|live-stream|dev|debug-wrapper-scripts|verbose)|-v+",
    "poetry": r"--(quiet|verbose)|-[qv]+",
    "pixi": r"--(frozen|locked|no-install|quiet|verbose)|-[qv]+",
    "pdm": r"--(site-packages|no-.*|quiet|verbose)|-[nqsv]+",
    "pipenv": r"--(quiet|verbose)|-[qv]+",
    "hatch": r"--(force-continue|ignore-compat)",
    "rye": r"--(list|verbose)|-[lv]+",
}
MODULE = ("-m", "--module")  # options of uv: the next word is a module
SECONDS = 120


def understands(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in WITHOUT_VALUE and "run" in words[1:2]


def read(words: Sequence[str], so_far: Program) -> Program:
    name = os.path.basename(words[0])
    position = 2
    while position < len(words) and words[position].startswith("-"):
        if words[position] in ("--", *MODULE):
            break
        is_alone = re.fullmatch(WITHOUT_VALUE[name], words[position]) or "=" in words[position]
        position += 1 if is_alone else 2
    before, rest = list(words[:position]), list(words[position:])
    if rest[:1] == ["--"]:
        rest = rest[1:]
    elif rest and rest[0] in MODULE:
        rest = ["python", "-m", *rest[1:]]
    if not rest:
        raise WorkloadError(
            f"`{name} run` starts no program.", f"For example {name} run python train.py."
        )
    found = launchers.read_line(rest, so_far)
    return replace(found, interpreter=found.interpreter or _interpreter_of(before))


def _interpreter_of(command: list[str]) -> str:
    """The interpreter that the tool starts, found by running it."""
    question = [*command, "python", "-c", "import sys; print(sys.executable)"]
    try:
        asked = subprocess.run(
            question, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise WorkloadError(
            f"{command[0]!r} is not installed here.", "Name the interpreter itself."
        ) from None
    except subprocess.TimeoutExpired:
        raise WorkloadError(
            f"`{' '.join(question)}` did not end within {SECONDS} s.", "Make it work first."
        ) from None
    lines = asked.stdout.split()
    if asked.returncode or not lines:
        raise WorkloadError(
            f"`{' '.join(question)}` failed:\n{asked.stderr.strip()[-500:]}",
            "Make it work first.",
        )
    return lines[-1]
