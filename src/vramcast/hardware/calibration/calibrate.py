"""`calibrate`: measures what GPU libraries allocate beside torch, and keeps it as a table."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.hardware import nvml
from vramcast.hardware.calibration import grid
from vramcast.hardware.calibration.table import read, table_name, user_folder
from vramcast.processes.lifetime import child_environment
from vramcast.records.calibration import Calibration
from vramcast.records.store import write_json


def calibrate(
    kernels: Sequence[str] | None = None,
    *,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[Calibration, Path]:
    """Measure what CUDA, cuBLAS and cuDNN take on the GPU here; predictions find the table.

    `kernels` are those of a prediction (Prediction.uncalibrated_kernels); without any, common
    layers are measured. Other kernels of an earlier table of the same GPU and torch stay known.
    """
    if not nvml.gpu_states():
        raise EnvironmentProblem(
            "There is no NVIDIA GPU here to calibrate.",
            "Predictions for it use the table that comes with vramcast.",
        )
    keys = list(kernels) if kernels is not None else list(grid.convolutions())
    measured = Calibration.from_dict({**_measure(keys, progress), "version": 1})
    path = (folder or user_folder()) / table_name(measured.architecture, measured.torch_version)
    if path.exists():
        known = read(path).convolutions
        measured = replace(measured, convolutions={**known, **measured.convolutions})
    write_json(path, measured.to_dict())
    read.cache_clear()
    return measured, path


def _measure(keys: list[str], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """In a process of its own: the context's size is only seen while CUDA starts."""
    with subprocess.Popen(
        [sys.executable, "-m", "vramcast.hardware.calibration.measure"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        try:
            process.stdin.write(json.dumps(keys))
            process.stdin.close()
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    news = json.loads(line)
                    if "table" in news:
                        return dict(news["table"])
                    progress(news["done"], len(keys))
            tail = process.stderr.read()[-1500:]
            raise EnvironmentProblem(
                f"The calibration gave no answer.\n{tail}".rstrip(),
                "Check that torch sees the GPU: vramcast probe.",
            )
        finally:
            process.kill()
