"""The bytecode of Inductor's generated code is kept beside it.

Why: compiling it in every run takes a third of a second.
"""

import sys
from importlib.machinery import SourceFileLoader
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._inductor.runtime.compile_tasks"


def apply(patcher: Patcher) -> None:
    def compile(_: str, path: str, *__: Any, **___: Any) -> Any:
        return SourceFileLoader(path, path).get_code(path)

    patcher.put(sys.modules[LIBRARY], "compile", compile, add=True)
