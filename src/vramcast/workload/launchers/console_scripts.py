"""Commands that a package installs, such as `tune run` and `litgpt pretrain`.

They are Python files.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace

from vramcast.workload.launch_line import Program
from vramcast.workload.launchers.python import own_or_other
from vramcast.workload.launchers.torchrun import in_world

# The first line of such a file. For a long path pip writes the second form.
SHEBANG = re.compile(
    rb"#!\s*(?P<path>\S*/python[\d.]*t?|/usr/bin/env\s+python[\d.]*)\s*\n"
    rb"|#!/bin/sh\n'''exec' \"?(?P<long>[^\"\n]*?)\"? \"\$0\" \"\$@\"\n"
)
MOST_BYTES = 4096


def understands(words: Sequence[str]) -> bool:
    return _found(_renamed(words)[0]) is not None


def _renamed(words: Sequence[str]) -> Sequence[str]:
    """`lightning run model` is now called `fabric run`."""
    if words[:2] == ["lightning", "run"]:
        return ["fabric", "run", *words[2 + (words[2:3] == ["model"]) :]]
    return words


def read(words: Sequence[str], so_far: Program) -> Program:
    words = _renamed(words)
    found = _found(words[0])
    assert found is not None  # `understands` has checked it
    path, interpreter = found
    program = replace(
        so_far,
        target=path,
        arguments=tuple(words[1:]),
        interpreter=so_far.interpreter or own_or_other(interpreter),
    )
    devices, nodes = (_number(words, name) for name in ("--devices", "--num-nodes"))
    is_fabric = words[:2] == ["fabric", "run"] and devices * nodes > 1
    return in_world(program, devices * nodes, devices) if is_fabric else program


def _number(words: Sequence[str], option: str) -> int:
    """The value of an option of `fabric run`."""
    text = " ".join(words).replace("_", "-")
    found = re.search(rf" {option}[= ](\d+)(?= |$)", text)
    return int(found[1]) if found else 1


def _found(word: str) -> tuple[str, str] | None:
    """The command's file, and the interpreter that it names. None if it is no Python command."""
    # if no environment is active, commands are beside the interpreter
    path = shutil.which(word) or shutil.which(word, path=os.path.dirname(sys.executable))
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            begin = SHEBANG.match(file.read(MOST_BYTES))
    except OSError:
        return None
    if begin is None:
        return None
    interpreter = os.fsdecode(begin["path"] or begin["long"])
    return path, interpreter.rpartition(" ")[2] if " " in interpreter else interpreter
