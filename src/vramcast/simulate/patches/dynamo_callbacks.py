"""Notes every compilation, and what is allocated during it.

Why: Inductor times kernels while it compiles. A second run finds the results in its caches.
"""

import sys
from contextlib import ExitStack
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._dynamo.callback"


def apply(patcher: Patcher) -> None:
    compiling = ExitStack()

    def begin(*_: Any) -> None:
        patcher.gpu.was_timed = False
        compiling.enter_context(patcher.gpu.compiling())

    handler = sys.modules[LIBRARY].CompilationCallbackHandler
    patcher.put(handler, "run_start_callbacks", begin)
    patcher.put(handler, "run_end_callbacks", lambda *_: compiling.close())
