"""`vramcast calibrate`."""

from __future__ import annotations

import sys
from pathlib import Path

from vramcast.cli.progress import total_display
from vramcast.errors import EnvironmentProblem
from vramcast.hardware import nvml
from vramcast.hardware.calibration.calibrate import calibrate
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, make_request
from vramcast.records.calibration import Calibration
from vramcast.simulate import build
from vramcast.simulate.runner import simulate
from vramcast.units import format_bytes
from vramcast.workload import split_assignments


def run(workload: str | None, assignments: list[str], out: str | None, as_json: bool) -> int:
    gpus = nvml.gpu_states()
    if not gpus:
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to calibrate.",
            "Run it on the machine with the GPU with --out FOLDER, and copy the table into calibration/ in vramcast's cache here.",
        )
    kernels = None
    if workload is not None:
        kernels = _uncalibrated(workload, assignments, find_gpu(gpus[0].name).name)
    with total_display("measuring kernels") as display:
        table, path = calibrate(kernels, folder=Path(out) if out else None, progress=display)
    if as_json:
        print(table.to_json())
    else:
        _show(table, None if kernels is None else len(kernels))
    print(f"Written to {path}", file=sys.stderr)
    return 0


def _uncalibrated(workload: str, assignments: list[str], gpu: str) -> list[str]:
    knobs = split_assignments(assignments)
    request = make_request(
        workload, gpu=gpu, memory=None, allocator=None, knobs=knobs, batch_sizes=None
    )
    build.build()
    return list(simulate(request, DEFAULT_TIMEOUT_SECONDS)["uncalibrated_kernels"])


def _show(table: Calibration, num_asked: int | None) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(
        title=f"Measured on {table.gpu} under torch {table.torch_version}",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    shown.add_column("")
    shown.add_column("", justify="right")
    for name, num_bytes in (
        ("process without its tensors (context, kernels)", table.process_bytes),
        ("what the GPU has less for it", table.device_bytes),
        ("more with flash attention or cuDNN", table.libraries_bytes),
        ("more with matrix factorisations", table.solver_bytes),
        ("cuBLAS workspace, each thread", table.gemm_workspace_bytes),
        ("cuBLASLt workspace", table.gemm_lt_workspace_bytes),
    ):
        shown.add_row(name, format_bytes(num_bytes))
    asked = "" if num_asked is None else f", {num_asked} of them new for this workload"
    shown.add_row(f"convolutions known{asked}", str(len(table.convolutions)))
    Console().print(shown)
