"""`vramcast gpus`."""

from __future__ import annotations

import json
from dataclasses import asdict

from vramcast.capacity import capacity_of
from vramcast.gpus import GPUS
from vramcast.units import format_bytes


def run(as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(gpu) for gpu in GPUS]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "architecture", "memory", "usable", "bandwidth", "bf16"):
        table.add_column(column, no_wrap=True)
    for gpu in GPUS:
        rate = gpu.flops_per_second.get("bf16")
        table.add_row(
            gpu.name,
            f"{gpu.architecture} {gpu.capability[0]}.{gpu.capability[1]}",
            format_bytes(gpu.total_bytes),
            format_bytes(capacity_of(gpu.name)),
            f"{gpu.bandwidth_bytes_per_second / 1e12:.2f} TB/s",
            f"{rate / 1e12:.0f} TFLOP/s" if rate else "no",
        )
    Console().print(table)
