"""The simulated GPU on which the programs of the files *_programs.py run."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from vramcast.hardware.gpus import find_gpu
from vramcast.simulate import device
from vramcast.simulate.session import Session

SESSION = Session(device.Device(), find_gpu("h200"))
BEFORE = ThreadPoolExecutor(1)  # with a thread from before any recording
KIB = 1 << 10


def taken_by(run: Callable[[], object]) -> list[int]:
    """Bytes that it allocates and, negative, frees; what it returns is kept for the while."""
    before = SESSION.device.num("events")
    kept = run()
    events, allocations = SESSION.device.events(before), SESSION.device.allocations()
    del kept
    return [allocations[abs(e) - 1].num_bytes * (1 if e > 0 else -1) for e in events]


def live_bytes() -> int:
    return int(SESSION.device.library.vramcast_allocated())


def run_programs() -> None:
    """Prints the name of every function of the main file and, where it failed, why."""
    warnings.simplefilter("ignore")
    BEFORE.submit(int).result()
    for name, program in vars(sys.modules["__main__"]).copy().items():
        if name.startswith("_") or getattr(program, "__module__", "") != "__main__":
            continue
        error = ""
        # what earlier programs imported: collections need not look at it
        gc.freeze()
        try:
            with SESSION.recording():
                program()
        except Exception:
            error = traceback.format_exc()
        print(json.dumps([name, error]), flush=True)
    # as every worker ends: Python would end threads of autograd that still hold its objects
    os._exit(0)
