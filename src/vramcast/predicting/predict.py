"""`vramcast.predict`: the GPU memory and the time of a training step, simulated without a GPU."""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.prediction import BatchSizeCurve, Prediction
from vramcast.simulate import build
from vramcast.simulate.runner import simulate
from vramcast.units import memory_in_bytes
from vramcast.workload import Workload, joined, name_of, parse_reference, separated

DEFAULT_TIMEOUT_SECONDS = 300.0
MAX_BATCH_SIZES = 10_000
BATCH_SIZES_ADVICE = "For example --batch-sizes 1-64 or 8,16,32."


def predict(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Prediction:
    """Predict the memory and the time of one training step with no GPU.

    `predict("train.py:build", batch_size=8, gpu="rtx-4090")`, or `predict(build, memory="24GiB")`.
    `trace="DIR"` keeps every allocation there: trace.json, and snapshot.pickle for memory_viz;
    `force=True` writes over old ones. A knob that has the name of an option goes into `knobs`.
    """
    request = make_request(workload, joined(knobs, more_knobs), gpu, memory, allocator)
    if trace is not None:
        from vramcast.tracing.files import check_free

        # Absolute: the workload may change the folder it works in.
        folder = Path(trace).absolute()
        check_free(folder, force=force)
        request |= {"trace": str(folder), "force": force}
    return Prediction.from_dict(simulated(request, timeout, progress))


def predict_batch_sizes(
    workload: Workload,
    batch_sizes: str | Sequence[int],
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> BatchSizeCurve:
    """Predict many batch sizes in little more time than one: only a few of them are simulated.

    `predict_batch_sizes("train.py:build", range(4, 33, 4), memory="24GiB")`; also "4-32:4".
    """
    sizes = read_batch_sizes(batch_sizes)
    request = make_request(workload, joined(knobs, more_knobs), gpu, memory, allocator)
    return BatchSizeCurve.from_dict(simulated({**request, "batch_sizes": sizes}, timeout, progress))


def read_batch_sizes(given: str | Sequence[int]) -> list[int]:
    """From 1-64, 1-64:4 (every fourth), 8,16,32, or whole numbers."""
    ranges = _ranges(given) if isinstance(given, str) else []
    # The len() of a range fails where it is very large.
    count = sum((r.stop - r.start) // r.step for r in ranges) if ranges else len(given)
    if count > MAX_BATCH_SIZES:
        raise UsageError(
            f"--batch-sizes {given} is {count:,} sizes; at most {MAX_BATCH_SIZES:,} are predicted.",
            "Give fewer, for example every fourth: --batch-sizes 4-64:4.",
        )
    sizes = sorted(set(chain(*ranges))) if isinstance(given, str) else list(given)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise UsageError(
            f"Batch sizes must be positive whole numbers, not {sizes}.", BATCH_SIZES_ADVICE
        )
    return sizes


def _ranges(text: str) -> list[range]:
    try:
        ranges = []
        for part in text.split(","):
            span, _, stride = part.partition(":")
            first, dash, last = span.partition("-")
            ranges.append(range(int(first), int(last if dash else first) + 1, int(stride or 1)))
        if all(1 <= sizes.start < sizes.stop and sizes.step > 0 for sizes in ranges):
            return ranges
    except ValueError:
        pass
    raise UsageError(f"--batch-sizes {text!r} is not a list of positive sizes.", BATCH_SIZES_ADVICE)


def make_request(
    workload: Workload,
    knobs: Mapping[str, Any],
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
) -> dict[str, Any]:
    """Everything the worker needs, checked as far as that goes without importing torch."""
    from vramcast.allocator.settings import AllocatorSettings, from_environment

    name = name_of(workload)
    parse_reference(name)
    settings = allocator if allocator is not None else from_environment()
    AllocatorSettings.parse(settings)
    return {
        "workload": name,
        **separated(knobs),
        "gpu": None if gpu is None else find_gpu(gpu).name,
        "memory_bytes": memory_in_bytes(memory),
        "allocator": settings,
    }


def simulated(
    request: dict[str, Any], timeout: float, progress: Report, name: str = "Simulating"
) -> dict[str, Any]:
    compile_device(progress)
    progress(Progress(name))
    return simulate(request, timeout)


def compile_device(progress: Report) -> None:
    if build.needs_building():
        line = "Compiling the simulated GPU for this version of torch, once (about 30 s)."
        progress(Progress("Compiling", line=line))
    build.build()
