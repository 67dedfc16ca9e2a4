"""Which C and C++ compilers are used, for building the simulated GPU and for `env`."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil


def cxx_compiler() -> list[str] | None:
    """Compiles the simulated GPU."""
    return _command("CXX", "g++", "c++", "clang++")


def c_compiler() -> list[str] | None:
    """Triton and torch.compile use it."""
    return _command("CC", "cc", "gcc", "clang")


def _command(variable: str, *usual: str) -> list[str] | None:
    """The variable's, which may have arguments ("ccache g++", "gcc -m64"), or an installed one."""
    for text in (os.environ.get(variable, ""), *usual):
        with contextlib.suppress(ValueError):  # quotes that are not closed
            words = shlex.split(text)
            if words and shutil.which(words[0]):
                return words
    return None
