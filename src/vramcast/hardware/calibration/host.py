"""The speed of this machine's host: a small training step on CPU tensors, which is all overhead.

Launching a kernel needs the same dispatcher, autograd and Python, and the driver in addition. So
the ratio of two machines' steps is an estimate of the ratio of their launches.
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramcast.hardware.calibration.table import user_folder
from vramcast.records.calibration import HostSpeed
from vramcast.records.store import check_trusted

FILE = "host.json"
ROUNDS = 40
STEPS_OF_ROUND = 5


def host_file(folder: Path | None = None) -> Path:
    return (folder or user_folder()) / FILE


def known_speed() -> HostSpeed | None:
    """The speed of this machine, if `vramcast calibrate --host` has run."""
    path = host_file()
    if not path.exists():
        return None
    check_trusted(path)
    return HostSpeed.from_file(path)


def measure(_: None, tell: Callable[[int], None]) -> dict[str, Any]:
    """The task. Seconds are the thread's own, so that other programs on the machine do not
    count."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    blocks = [(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU()) for _ in range(8)]
    model = torch.nn.Sequential(*(layer for block in blocks for layer in block))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(4, 8)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = []
    for done in range(ROUNDS):
        tell(done)
        started = time.thread_time()
        for _step in range(STEPS_OF_ROUND):
            step()
        seconds.append((time.thread_time() - started) / STEPS_OF_ROUND)
    fastest = sorted(seconds[2:])[: ROUNDS // 4]  # the slower ones were disturbed
    return {
        "machine": f"{platform.node()} ({_processor()})",
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "step_seconds": statistics.median(fastest),
    }


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
