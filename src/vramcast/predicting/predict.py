"""Predict the GPU memory of a training step: the Python face of `vramcast predict`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.simulate import build
from vramcast.simulate.runner import simulate
from vramcast.units import memory_in_bytes
from vramcast.workload import Workload, joined, name_of, parse_reference, separated

DEFAULT_TIMEOUT_SECONDS = 300.0


def predict(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Prediction:
    """Predict the memory of one training step with no GPU.

    `predict("train.py:build", batch_size=8, gpu="rtx-4090")` or `predict(build, batch_size=8, memory="24GiB")`.
    `trace="DIR"` keeps every allocation there: trace.json, and snapshot.pickle for memory_viz; `force=True` writes over old ones.
    """
    request = make_request(
        workload,
        gpu=gpu,
        memory=memory,
        allocator=allocator,
        knobs=joined(knobs, more_knobs),
        batch_sizes=None,
        trace=trace,
        force=force,
    )
    build.build()
    return Prediction.from_dict(simulate(request, timeout))


def predict_batch_sizes(
    workload: Workload,
    batch_sizes: Sequence[int],
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> BatchSizeCurve:
    """Predict many batch sizes in little more time than one: a few are simulated, the others interpolated and replayed.

    `predict_batch_sizes("train.py:build", range(4, 33, 4), memory="24GiB")`.
    """
    request = make_request(
        workload,
        gpu=gpu,
        memory=memory,
        allocator=allocator,
        knobs=joined(knobs, more_knobs),
        batch_sizes=batch_sizes,
    )
    build.build()
    return curve_from(simulate(request, timeout))


def curve_from(data: dict[str, Any]) -> BatchSizeCurve:
    return BatchSizeCurve.from_dict(data)


def make_request(
    workload: Workload,
    *,
    gpu: str | None,
    memory: str | int | None,
    allocator: str | None,
    knobs: Mapping[str, Any],
    batch_sizes: Sequence[int] | None,
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Everything the worker needs, checked as far as that goes without importing torch."""
    from vramcast.allocator.settings import AllocatorSettings, from_environment
    from vramcast.tracing.files import check_free

    name = name_of(workload)
    parse_reference(name)
    settings = allocator if allocator is not None else from_environment()
    AllocatorSettings.parse(settings)
    if batch_sizes is not None and (
        not batch_sizes or any(type(size) is not int or size < 1 for size in batch_sizes)
    ):
        what = f"Batch sizes must be positive whole numbers, not {list(batch_sizes)}."
        raise UsageError(what, "For example --batch-sizes 1-64 or 8,16,32.")
    if trace is not None and batch_sizes is not None:
        raise UsageError(
            "A trace is of one run; a list of batch sizes is many.",
            "Give batch_size=N with --trace, or leave --trace out.",
        )
    # absolute: the workload may change the folder it works in
    folder = None if trace is None else Path(trace).absolute()
    if folder is not None:
        check_free(folder, force=force)
    return {
        "workload": name,
        **separated(knobs),
        "gpu": None if gpu is None else find_gpu(gpu).name,
        "memory_bytes": memory_in_bytes(memory),
        "allocator": settings,
        "batch_sizes": None if batch_sizes is None else list(batch_sizes),
        "trace": None if folder is None else str(folder),
        "force": force,
    }
