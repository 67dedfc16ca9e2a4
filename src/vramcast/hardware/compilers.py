"""Which C and C++ compilers are used: one rule for building the simulated GPU and for `env`."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil


def cxx_compiler() -> list[str] | None:
    """The command of CXX, or a compiler that is installed; it compiles the simulated GPU."""
    return _command("CXX", "g++", "c++", "clang++")


def c_compiler() -> list[str] | None:
    """The command of CC, or a compiler that is installed; Triton and torch.compile use it."""
    return _command("CC", "cc", "gcc", "clang")


def _command(variable: str, *usual: str) -> list[str] | None:
    """A variable may hold a command with arguments, such as "ccache g++" or "gcc -m64"."""
    for text in (os.environ.get(variable, ""), *usual):
        with contextlib.suppress(ValueError):  # quotes that are not closed
            words = shlex.split(text)
            if words and shutil.which(words[0]):
                return words
    return None
