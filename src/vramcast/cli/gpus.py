"""`vramcast gpus`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import vramcast
from vramcast.cli.command import ExitCode, command
from vramcast.units import format_bytes

if TYPE_CHECKING:
    from vramcast.hardware.gpus import Gpu

COLUMNS = ("name", "architecture", "memory", "usable", "bandwidth", "bf16 TFLOP/s")


@command(
    "gpus",
    question="Which GPUs are known by name?",
    examples="vramcast gpus",
    then="vramcast predict ... --gpu NAME; for a GPU that is not there, --memory 24GiB.",
    needs_arguments=False,
)
def gpus(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
) -> int:
    """List the GPUs vramcast knows.

    Exit codes: 0 done, 2 wrong usage.
    """
    if as_json:
        print(json.dumps([asdict(gpu) for gpu in vramcast.GPUS]))
        return ExitCode.DONE
    from vramcast.reporting.sections import Section, Table
    from vramcast.reporting.showing import show

    rows = [_cells(gpu) for gpu in vramcast.GPUS]
    table = Table(columns=COLUMNS, left=("name", "architecture"), rows=rows)
    show([Section(title="GPUs", parts=[table])])
    return ExitCode.DONE


def _cells(gpu: Gpu) -> list[str]:
    from vramcast.forecast.budget import budget_for

    rate = gpu.flops_per_second.get("bf16")
    return [
        gpu.name,
        f"{gpu.architecture} {gpu.capability[0]}.{gpu.capability[1]}",
        format_bytes(gpu.total_bytes),
        format_bytes(budget_for(gpu.name).capacity_bytes or 0),
        f"{gpu.bandwidth_bytes_per_second / 1e12:.2f} TB/s",
        f"{rate / 1e12:.0f}" if rate else "none",
    ]
