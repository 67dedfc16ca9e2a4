"""A backward pass returns only when autograd's thread has let go of its last tensors.

Why: autograd's device thread first reports the end, then drops what it holds.
How: on Linux the state of every thread can be read; elsewhere we do not wait. torch names these
threads pt_autograd_0 and so on.
"""

import os
import threading
import time
from typing import Any

import torch

from vramcast.simulate.patching import Patcher

LIBRARY = "torch"
TASKS = "/proc/self/task"
THREAD_NAME = "pt_autograd"
PAUSE_SECONDS = 2e-5
MAX_WAIT_SECONDS = 1.0


def apply(patcher: Patcher) -> None:
    run_backward = torch.autograd._engine_run_backward

    def run_to_the_end(*arguments: Any, **options: Any) -> Any:
        result = run_backward(*arguments, **options)
        wait_until_idle()
        patcher.gpu.reads.saw_backward_pass()
        return result

    patcher.put(torch.autograd, "_engine_run_backward", run_to_the_end)


def wait_until_idle() -> None:
    """Waits until autograd's threads were seen asleep twice: once may only be a wait for the
    GIL."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    times_asleep = 0
    while times_asleep < 2 and time.monotonic() < deadline:
        times_asleep = 0 if _is_autograd_running() else times_asleep + 1
        time.sleep(PAUSE_SECONDS)  # lets other threads take the GIL


def _is_autograd_running() -> bool:
    # A backward pass inside a backward pass, as in checkpointing, runs on autograd's own thread.
    own = str(threading.get_native_id())
    tasks = os.listdir(TASKS) if os.path.isdir(TASKS) else []
    return any(_is_running_autograd_thread(task) for task in tasks if task != own)


def _is_running_autograd_thread(task: str) -> bool:
    try:
        with open(f"{TASKS}/{task}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except OSError:  # the thread has ended
        return False
    # S: waits for something; I: an idle thread of the kernel
    return name.startswith(THREAD_NAME) and rest.split()[0] not in "SI"
