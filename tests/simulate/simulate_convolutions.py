"""Simulates recorded convolutions in this process and prints their events, one line each.

    python tests/simulate/simulate_convolutions.py EVERY

It takes every EVERY-th line of benchmarks/convolutions/h200-torch-2.11.jsonl.gz. The last line is
one convolution under several settings of torch.backends.cudnn.
"""

from __future__ import annotations

import gzip
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramcast.hardware.calibration import table
from vramcast.hardware.gpus import find_gpu
from vramcast.simulate import device as simulated
from vramcast.simulate.session import Session

DEVICE = simulated.Device()

import torch  # noqa: E402

from vramcast.simulate import patches  # noqa: E402

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "benchmarks" / "convolutions" / "h200-torch-2.11.jsonl.gz"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
GEOMETRY = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


def events_of(call: Callable[[], Any]) -> list[int]:
    """Sizes taken, and given back before the call ended; 0 empties the cache."""
    before = DEVICE.num("events")
    result = call()
    events, allocations = DEVICE.events(before), DEVICE.allocations()
    del result
    sizes = []
    for event in events:
        is_number = abs(event) <= len(allocations)
        size = allocations[abs(event) - 1].num_bytes if is_number else 0
        sizes.append(size if event > 0 else -size)
    return sizes


def simulate(case: dict[str, Any]) -> dict[str, list[int]]:
    torch.backends.cudnn.allow_tf32 = case["tf32"]
    layout = torch.channels_last if case["channels_last"] else torch.contiguous_format
    options: dict[str, Any] = {"device": "cuda", "dtype": DTYPES[case["dtype"]]}
    x = torch.empty([case["batch"], *case["x"]], **options).contiguous(memory_format=layout)
    weight = torch.empty(case["weight"], **options).contiguous(memory_format=layout)
    geometry = [case[name] for name in GEOMETRY]

    def forward() -> Any:
        return torch.ops.aten.convolution(x, weight, None, *geometry)

    grad = torch.empty_like(forward())

    def backward() -> Any:
        wanted = (True, True, False)
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, wanted)

    return {"forward": events_of(forward), "backward": events_of(backward)}


def under_settings() -> dict[str, list[int]]:
    x = torch.empty(8, 64, 32, 32, device="cuda")
    weight = torch.empty(64, 64, 3, 3, device="cuda")

    def forward() -> Any:
        return torch.nn.functional.conv2d(x, weight, padding=1)

    cudnn = torch.backends.cudnn
    found = {}
    with cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        found["tried"] = events_of(forward)
        found["tried before"] = events_of(forward)
    with cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        found["exact, tried"] = events_of(forward)
    with cudnn.flags(enabled=True, benchmark=False, allow_tf32=True):
        found["plain"] = events_of(forward)
    with cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        found["chosen before"] = events_of(forward)
    with cudnn.flags(enabled=False):
        found["without cuDNN"] = events_of(forward)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    gpu = find_gpu("h200")
    session = Session(DEVICE, gpu, table.find(gpu, "2.11.0")[0])
    with gzip.open(RECORDING, "rt") as file:
        cases = [json.loads(line) for line in file][1 :: int(sys.argv[1])]
    with patches.installed(session.gpu), DEVICE.on():
        for case in cases:
            if "error" not in case:
                print(json.dumps({"case": case, "simulated": simulate(case)}))
        print(json.dumps(under_settings()))


if __name__ == "__main__":
    main()
