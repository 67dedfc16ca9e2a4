"""Triton finds the source of its functions in the syntax tree of their file.

Why: it reads the source of every kernel when the kernel is made, by going through the words of the
file, and there are more than a hundred of them in the libraries that torch.compile imports.
Versions: triton 3.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "triton.runtime.jit"


def apply(patcher: Patcher) -> None:
    patcher.put(sys.modules[LIBRARY], "inspect", _Inspect("inspect"))


class _Inspect(ModuleType):
    @staticmethod
    def getsourcelines(function: Any) -> tuple[list[str], int]:
        found = _lines_of(function) if isinstance(function, FunctionType) else None
        return found or inspect.getsourcelines(function)

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)


def _lines_of(function: FunctionType) -> tuple[list[str], int] | None:
    file, first = function.__code__.co_filename, function.__code__.co_firstlineno
    last = _last_lines(file, "".join(linecache.getlines(file))).get(first)
    return (linecache.getlines(file)[first - 1 : last], first) if last else None


@cache
def _last_lines(file: str, source: str) -> dict[int, int]:
    """The last line of each function, by its first, which is that of its decorators."""
    try:
        tree = ast.parse(source, file)
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min(one.lineno for one in (node, *node.decorator_list))
            found[first] = node.end_lineno or node.lineno
    return found
