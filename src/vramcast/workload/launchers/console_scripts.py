"""Commands that a package installs, such as `tune run` and `litgpt pretrain`: they are files in
Python."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace

from vramcast.workload.launch_line import Program
from vramcast.workload.launchers.python import own_or_other

# The first line of such a file; for a long path pip writes the second form.
SHEBANG = re.compile(
    rb"#!\s*(?P<path>\S*/python[\d.]*t?|/usr/bin/env\s+python[\d.]*)\s*\n"
    rb"|#!/bin/sh\n'''exec' \"?(?P<long>[^\"\n]*?)\"? \"\$0\" \"\$@\"\n"
)
MOST_BYTES = 4096


def understands(words: Sequence[str]) -> bool:
    return _found(words[0]) is not None


def read(words: Sequence[str], so_far: Program) -> Program:
    found = _found(words[0])
    assert found is not None  # it was understood
    path, interpreter = found
    return replace(
        so_far,
        target=path,
        arguments=tuple(words[1:]),
        interpreter=so_far.interpreter or own_or_other(interpreter),
    )


def _found(word: str) -> tuple[str, str] | None:
    """The command's file and the interpreter that it names."""
    # where no environment is active, commands are beside the interpreter
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
