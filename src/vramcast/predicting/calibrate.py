"""`vramcast.calibrate`: measure what GPU libraries allocate, for common layers or a workload."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramcast.hardware import nvml
from vramcast.hardware.calibration.calibrate import calibrate as measure_kernels
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, make_request, simulated
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.calibration import Calibration
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
    kernels = None
    if workload is not None:
        request = make_request(workload, joined(knobs, more_knobs), find_gpu(here[0].name).name)
        found = simulated(request, DEFAULT_TIMEOUT_SECONDS, progress)
        kernels = list(found["uncalibrated_kernels"])
        line = f"{len(kernels)} kernels of this workload are in no table yet."
        progress(Progress("Measuring kernels", line=line))
    return measure_kernels(
        kernels,
        folder=None if out is None else Path(out),
        progress=lambda done, total: progress(Progress("Measuring kernels", done, total)),
    )
