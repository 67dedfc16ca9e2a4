"""What a launch line starts: one file for each launcher.

To understand another launcher, add a file with `understands(words)` and `read(words, so_far)`, and
its name to LAUNCHERS. `so_far` is what was read before it, such as environment variables; `read`
returns a Program. A launcher that starts another one calls `read_line` with the rest.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.workload.interpreters import interpreter_of
from vramcast.workload.launch_line import Program, launch_line

LAUNCHERS = (
    "python",
    "torchrun",
    "accelerate",
    "deepspeed",
    "cluster",
    "environments",
    "wrappers",
    "shell",
    "console_scripts",
)
STARTS_PYTHON = r"python[\d.]*|torchrun|accelerate|deepspeed|.*\.py"
FILE_NAME = r"""(?:"[^"]*"|'[^']*'|[^\s&|;])+"""
REDIRECTION = re.compile(rf"(?<!\S)(?:\d|&)?>{{1,2}}\s*(?:&\d|{FILE_NAME})|(?<!\S)<\s*{FILE_NAME}")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
FORMS = (
    "Understood are: python FILE, python -m MODULE, FILE.py, torchrun, accelerate launch, "
    "deepspeed, uv run, conda run, srun, mpirun, a shell's script that starts one program, "
    "commands of installed packages (tune run, litgpt), each with NAME=VALUE, timeout, nice or "
    "nohup before it."
)


def read_line(words: Sequence[str], so_far: Program | None = None) -> Program:
    """The program that a line starts. Nothing is started for this, and nothing of the program is
    read."""
    so_far = so_far or Program("")
    words, variables = list(words), dict(so_far.environment)
    if len(words) == 1 and " " in words[0] and not os.path.exists(words[0]):
        words = words_of_shell(words[0])
    if words and words[0] == "env":
        del words[0]
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    so_far = replace(so_far, environment=variables)
    if not words:
        raise WorkloadError("The launch line starts no program.", FORMS)
    for name in LAUNCHERS:
        launcher = import_module(f"{__name__}.{name}")
        if launcher.understands(words):
            program: Program = launcher.read(words, so_far)
            return program
    raise WorkloadError(
        f"{words[0]!r} is not a launcher that vramcast understands.", _without(words) or FORMS
    )


def _without(words: Sequence[str]) -> str:
    """An advice with the part of the line that is understood."""
    for position in range(1, len(words)):
        if re.fullmatch(STARTS_PYTHON, os.path.basename(words[position])):
            while position > 1 and ASSIGNMENT.match(words[position - 1]):
                position -= 1
            return f"Leave out what it adds: -- {shlex.join(words[position:])}"
    return ""


def words_of_shell(text: str) -> list[str]:
    """The words of a shell command. Redirections of its output are dropped."""
    text = re.sub(r"\s*\|\s*tee\s[^|;&]*$", "", REDIRECTION.sub("", text).rstrip(" &\n"))
    shell = shlex.shlex(text, posix=True, punctuation_chars=True)
    shell.whitespace_split = True
    try:
        words = list(shell)
    except ValueError:
        words = [";"]
    if not words or any(set(word) <= set("();<>|&") for word in words) or re.search(r"[$`]", text):
        raise WorkloadError(
            f"What only a shell understands is not run: {text}",
            "Give the one command that starts the training, with its values, "
            "from the folder in which it starts.",
        )
    return words


def line_request(
    workload: Any, knobs: Mapping[str, Any], moved: Sequence[str] = ()
) -> dict[str, Any]:
    """What a worker needs to run a launch line, after checking it. Empty for a function."""
    if not isinstance(workload, list | tuple):
        return {}
    line = launch_line(workload)
    line.check_knobs(knobs, moved)
    # This also checks the line; a search fills in its sizes later.
    program = read_line(line.filled({**dict.fromkeys(moved, 1), **knobs}))
    stdin = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if not sys.stdin.isatty():
            stdin = f"/proc/{os.getpid()}/fd/{sys.stdin.fileno()}"
    return {
        "line": list(line.words),
        "stdin": stdin,
        "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "python": interpreter_of(program),
        "started": (program.world_size, program.gpus_per_node),
    }
