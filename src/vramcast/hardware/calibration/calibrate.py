"""`calibrate`: measures what GPU libraries allocate beside torch, and keeps it as a table."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from vramcast.errors import EnvironmentProblem
from vramcast.hardware.calibration.table import convolution_key, read, table_name, user_folder
from vramcast.processes.ask import TaskFailed, ask
from vramcast.records.calibration import Calibration
from vramcast.records.store import write_json

LAYERS = Path(__file__).with_name("layers.toml")


def calibrate(
    kernels: Sequence[str] | None = None,
    *,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[Calibration, Path]:
    """Measures `kernels` (as in Prediction.uncalibrated_kernels), or common layers.

    They are added to an earlier table of the same GPU and torch.
    """
    keys = list(common_convolutions() if kernels is None else kernels)
    measured = Calibration.from_dict({**_measure(keys, progress), "version": 1})
    path = (folder or user_folder()) / table_name(measured.architecture, measured.torch_version)
    if path.exists():
        known = read(path).convolutions
        measured = replace(measured, convolutions={**known, **measured.convolutions})
    write_json(path, measured.to_dict())
    read.cache_clear()
    return measured, path


def common_convolutions() -> Iterator[str]:
    """Keys of all layers of layers.toml, in every batch size, precision and layout."""
    grid = tomllib.loads(LAYERS.read_text())
    for batch, dtype, channels_last, layer in product(
        grid["batch_sizes"], grid["precisions"], (False, True), grid["layers"]
    ):
        channels_in, size, channels_out, kernel, stride, padding = layer
        yield convolution_key(
            dtype=dtype,
            channels_last=channels_last,
            x=(batch, channels_in, size, size),
            weight=(channels_out, channels_in, kernel, kernel),
            stride=(stride, stride),
            padding=(padding, padding),
            dilation=(1, 1),
            groups=1,
        )


def _measure(keys: list[str], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """In a process of its own: the context's size is only seen while CUDA starts."""
    try:
        answer = ask(
            "vramcast.hardware.calibration.measure:table",
            keys,
            timeout_seconds=3600.0,  # a few minutes are usual
            progress=lambda done: progress(done, len(keys)),
        )
    except TaskFailed as failure:
        raise EnvironmentProblem(
            f"The calibration gave no answer.\n{failure.message}",
            "Check that torch sees the GPU: vramcast probe.",
        ) from None
    return dict(answer)
