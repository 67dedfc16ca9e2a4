"""Simulates every kernel case in this process and writes what two calls allocate and free.

    python tests/simulate/simulate_cases.py OUT.jsonl.gz

The format is that of tests/recordings/record_kernels.py.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "recordings")]

from vramcast.simulate import device as simulated  # noqa: E402

DEVICE = simulated.Device()

import torch  # noqa: E402

from vramcast.hardware.gpus import find_gpu  # noqa: E402
from vramcast.simulate import patches  # noqa: E402
from vramcast.simulate.session import Session  # noqa: E402


def events_of(run: object) -> list[int]:
    before = DEVICE.num("events")
    run()  # type: ignore[operator]
    events = DEVICE.events(before)
    allocations = DEVICE.allocations()
    mine = {event for event in events if event > 0}
    return [
        allocations[e - 1].num_bytes
        if e > 0
        else -allocations[-e - 1].num_bytes
        if -e in mine
        else 0
        for e in events
    ]


def simulate(name: str) -> dict[str, object]:
    from kernel_cases import CASES

    try:
        run = CASES[name]()
        return {"name": name, "first": events_of(run), "second": events_of(run)}
    except Exception as error:
        return {"name": name, "error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    warnings.simplefilter("ignore")
    gpu = Session(DEVICE, find_gpu("h200")).gpu
    with patches.installed(gpu), DEVICE.on(), gzip.open(sys.argv[1], "wt") as file:
        from kernel_cases import CASES

        gc.collect()
        gc.freeze()
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        torch.nn.functional.linear(x, x, x[0]).sum().backward()
        (x @ x).sum().backward()
        for name in CASES:
            file.write(json.dumps(simulate(name)) + "\n")
            gc.collect()
            # the modules that a case imported: the next collections need not look at them
            gc.freeze()


if __name__ == "__main__":
    main()
