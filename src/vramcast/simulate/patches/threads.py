"""New threads of the program run on the simulated GPU from their beginning.

Why: the simulated GPU is switched on for each thread. A thread that was there before is noticed
when it first uses the GPU.
Versions: Python 3.11 to 3.14.
"""

import threading
from typing import Any

from vramcast.simulate.patching import Patcher

LIBRARY = "threading"


def apply(patcher: Patcher) -> None:
    kind: Any = threading.Thread
    run, library = kind._bootstrap_inner, patcher.gpu.device.library

    def run_on_the_gpu(thread: threading.Thread) -> None:
        library.vramcast_enable(True)
        try:
            run(thread)
        finally:
            library.vramcast_end_thread()

    patcher.put(kind, "_bootstrap_inner", run_on_the_gpu)
