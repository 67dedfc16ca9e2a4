"""`vramcast gpus`."""

from __future__ import annotations

import json
from dataclasses import asdict

from vramcast.hardware.gpus import GPUS, Gpu
from vramcast.predicting.max_batch import capacity_of
from vramcast.units import format_bytes


def run(as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(gpu) for gpu in GPUS]))
        return
    from rich.console import Console

    from vramcast.reporting.tables import Heading, fitted

    console = Console()
    headings = [
        Heading(name)
        for name in ("name", "architecture", "memory", "usable", "bandwidth", "bf16 TFLOP/s")
    ]
    console.print(fitted(headings, [_cells(gpu) for gpu in GPUS], console.width))


def _cells(gpu: Gpu) -> list[str]:
    rate = gpu.flops_per_second.get("bf16")
    return [
        gpu.name,
        f"{gpu.architecture} {gpu.capability[0]}.{gpu.capability[1]}",
        format_bytes(gpu.total_bytes),
        format_bytes(capacity_of(gpu.name)),
        f"{gpu.bandwidth_bytes_per_second / 1e12:.2f} TB/s",
        f"{rate / 1e12:.0f}" if rate else "none",
    ]
