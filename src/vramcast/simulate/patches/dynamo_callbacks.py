"""Notes every compilation, and what is allocated during it.

Why: Inductor times kernels while it compiles. A second run finds the results in its caches.
"""

import gc
import sys
from contextlib import ExitStack
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "torch._dynamo.callback"
# Objects made until Python looks for garbage: by its own 700 that takes a sixteenth of the time.
NEW_OBJECTS = 10_000


def apply(patcher: Patcher) -> None:
    compiling = ExitStack()

    def begin(*_: Any) -> None:
        patcher.gpu.was_timed = False
        compiling.enter_context(patcher.gpu.compiling())
        compiling.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(max(NEW_OBJECTS, gc.get_threshold()[0]), *gc.get_threshold()[1:])

    handler = sys.modules[LIBRARY].CompilationCallbackHandler
    patcher.put(handler, "run_start_callbacks", begin)
    patcher.put(handler, "run_end_callbacks", lambda *_: compiling.close())
