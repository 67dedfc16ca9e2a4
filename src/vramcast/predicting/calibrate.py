"""`vramcast.calibrate`: measure what GPU libraries allocate, for common layers or a workload."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.hardware import nvml
from vramcast.hardware.calibration.host import ROUNDS, host_file
from vramcast.hardware.calibration.table import common_convolutions, keep, user_folder
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, make_request, simulated
from vramcast.processes.ask import TaskFailed, ask
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.calibration import Calibration, HostSpeed
from vramcast.records.store import write_json
from vramcast.workload import Workload, joined


def calibrate(
    workload: Workload | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> tuple[Calibration, Path]:
    """Measure what CUDA, cuBLAS and cuDNN take on the GPU here: the table, and its file.

    `calibrate("train.py:build", batch_size=8)` measures the convolutions of this workload that no
    table has yet; without a workload, common ones are measured. `out` is the folder of the table;
    without it, predictions find the table by themselves.
    """
    here = nvml.require_gpu(
        "calibrate",
        "Run it on the machine with the GPU with --out FOLDER, "
        "and copy the table into calibration/ in vramcast's cache here.",
    )
    if workload is None:
        keys = list(common_convolutions())
    else:
        request = make_request(workload, joined(knobs, more_knobs), find_gpu(here[0].name).name)
        found = simulated(request, DEFAULT_TIMEOUT_SECONDS, progress)
        keys = found["uncalibrated_kernels"]
        line = f"{len(keys)} kernels of this workload are in no table yet."
        progress(Progress("Measuring kernels", line=line))
    answer = _ask("vramcast.hardware.calibration.measure:table", keys, len(keys), progress)
    measured = Calibration.from_dict({**answer, "version": 1})
    return keep(measured, user_folder() if out is None else Path(out))


def calibrate_host(
    *, out: str | os.PathLike[str] | None = None, progress: Report = ignore
) -> tuple[HostSpeed, Path]:
    """Measure how fast this machine's host is, without a GPU: the record, and its file.

    Predictions made here then hold for this machine; without it, for the machines that the shipped
    rates were measured on. Remove the file to go back to those.
    """
    path = host_file(None if out is None else Path(out))
    answer = _ask("vramcast.hardware.calibration.host:measure", None, ROUNDS, progress)
    speed = HostSpeed.from_dict({**answer, "version": 1})
    write_json(path, speed.to_dict())
    return speed, path


def _ask(task: str, request: Any, total: int, progress: Report) -> dict[str, Any]:
    """Runs a measuring task in a process of its own: the context's size shows only while CUDA
    starts."""
    try:
        answer = ask(
            task,
            request,
            timeout_seconds=3600.0,  # usually a few minutes
            progress=lambda done: progress(Progress("Measuring", done, total)),
        )
    except TaskFailed as failure:
        raise EnvironmentProblem(
            f"The calibration gave no answer.\n{failure.message}",
            "Run it again, or vramcast env.",
        ) from None
    return dict(answer)
