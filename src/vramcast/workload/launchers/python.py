"""`python FILE`, `python -m MODULE`, the interpreter's own flags, and a bare `FILE.py`."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace

from vramcast.errors import WorkloadError
from vramcast.text import did_you_mean
from vramcast.workload import launchers
from vramcast.workload.launch_line import Program
from vramcast.workload.reference import check_size

NAME = re.compile(r"python(\d(\.\d+)?)?t?")
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# Flags whose letters can be combined, as in -uB.
PLAIN = frozenset("bBdEiIOPqsSuvx")
DISTRIBUTED_RUN = ("torch.distributed.run", "torch.distributed.launch")


def understands(words: Sequence[str]) -> bool:
    name = os.path.basename(words[0])
    return NAME.fullmatch(name) is not None or name.endswith(".py")


def read(words: Sequence[str], so_far: Program) -> Program:
    if words[0].endswith(".py"):
        return _file(words, so_far)
    so_far = replace(so_far, interpreter=so_far.interpreter or own_or_other(words[0]))
    flags: list[str] = []
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "-m" or word.startswith("-m"):
            return _module([word[2:], *rest] if word != "-m" else rest, so_far, flags)
        if word == "-c" or word.startswith("-c"):
            raise WorkloadError(
                "`python -c` has no file that can be run again.", "Put the code into a file."
            )
        flags.append(word)
        if word in WITH_VALUE:
            if not rest:
                raise WorkloadError(f"python's option {word} has no value.", "Give it one.")
            flags.append(rest.pop(0))
        elif not word.startswith(("-W", "-X", "--")) and not set(word[1:]) <= PLAIN:
            raise WorkloadError(f"python has no option {word!r}.", "See python --help.")
    if not rest or rest[0] == "-":
        raise WorkloadError(
            "The launch line starts python without a program.", "For example python train.py."
        )
    return _file(rest, replace(so_far, flags=tuple(flags)))


def _module(rest: Sequence[str], so_far: Program, flags: Sequence[str]) -> Program:
    if not rest or not rest[0]:
        raise WorkloadError("python -m names no module.", "For example python -m package.train.")
    so_far = replace(so_far, flags=tuple(flags))
    if rest[0] in DISTRIBUTED_RUN:
        return launchers.read_line(["torchrun", *rest[1:]], so_far)
    if rest[0] == "accelerate.commands.launch":
        return launchers.read_line(["accelerate", "launch", *rest[1:]], so_far)
    return replace(so_far, target=rest[0], is_module=True, arguments=tuple(rest[1:]))


def _file(words: Sequence[str], so_far: Program) -> Program:
    path = os.path.expanduser(words[0])
    if os.path.isdir(path) and os.path.isfile(os.path.join(path, "__main__.py")):
        path = os.path.join(path, "__main__.py")
    if not os.path.exists(path):
        folder = os.path.dirname(path) or "."
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        hint = did_you_mean(os.path.basename(path), [n for n in names if n.endswith(".py")])
        raise WorkloadError(
            f"There is no file {words[0]!r} (looked for {os.path.abspath(path)}).",
            hint or "Start vramcast where you start the program, or correct the path.",
        )
    if not os.path.isfile(path):
        raise WorkloadError(f"{words[0]!r} is not a file.", "Name the program's file.")
    if path.endswith(".ipynb"):
        raise WorkloadError(
            f"{words[0]!r} is a notebook, not a program.",
            f"Make one of it: jupyter nbconvert --to script {words[0]}",
        )
    check_size(path)
    return replace(so_far, target=path, arguments=tuple(words[1:]))


def own_or_other(word: str) -> str | None:
    """The interpreter's path, or None for vramcast's own. A bare `python` means vramcast's own,
    which it is installed beside."""
    if os.sep not in word:
        return None
    found = shutil.which(os.path.expanduser(word))
    if found is None:
        raise WorkloadError(f"There is no interpreter {word!r}.", "Correct its path.")
    # Environments differ by the interpreter's folder: in most, it is a link to the same file.
    is_own = os.path.samefile(found, sys.executable) and os.path.samefile(
        os.path.dirname(found), os.path.dirname(sys.executable)
    )
    return None if is_own else os.path.abspath(found)
