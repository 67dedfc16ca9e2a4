"""Triton finds the source of its functions by the lines of their code.

Why: it goes through the words of the file for every kernel, of which torch.compile imports more
than a hundred.
Versions: triton 3.
"""

import inspect
import linecache
import sys
from types import FunctionType, ModuleType
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.jit"


def apply(patcher: Patcher) -> None:
    patcher.put(sys.modules[LIBRARY], "inspect", _Inspect("inspect"))


class _Inspect(ModuleType):
    @staticmethod
    def getsourcelines(function: Any) -> tuple[list[str], int]:
        is_plain = isinstance(function, FunctionType) and not hasattr(function, "__wrapped__")
        found = _lines_of(function) if is_plain else None
        return found or inspect.getsourcelines(function)

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)


def _lines_of(function: FunctionType) -> tuple[list[str], int] | None:
    code = function.__code__
    lines, first = linecache.getlines(code.co_filename), code.co_firstlineno
    if not 0 < first <= len(lines):
        return None
    last = max(end for _, end, *_ in code.co_positions() if end)
    indentation = _indentation(lines[first - 1])
    # lines without bytecode belong to it too: functions, comments, names that only have a type
    for number in range(last + 1, len(lines) + 1):
        if lines[number - 1].strip():
            if _indentation(lines[number - 1]) <= indentation:
                break
            last = number
    return lines[first - 1 : last], first


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
