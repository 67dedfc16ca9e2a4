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
# max-autotune leaves tensors in the garbage: there it looks as often as on a GPU.
NEW_OBJECTS = 10_000


def apply(patcher: Patcher) -> None:
    compiling = ExitStack()

    def begin(*_: Any) -> None:
        patcher.gpu.was_timed = False
        compiling.enter_context(patcher.gpu.compiling())
        config: Any = sys.modules.get("torch._inductor.config")
        if patcher.gpu.autotunes or (config and (config.max_autotune or config.max_autotune_gemm)):
            return
        first, *others = gc.get_threshold()
        compiling.callback(gc.set_threshold, first, *others)
        gc.set_threshold(first and max(NEW_OBJECTS, first), *others)  # 0: never

    handler = sys.modules[LIBRARY].CompilationCallbackHandler
    patcher.put(handler, "run_start_callbacks", begin)
    patcher.put(handler, "run_end_callbacks", lambda *_: compiling.close())
