"""`vramcast.sensitivity`: how the peak moves with each whole-number knob of a workload."""

import time
from collections.abc import Mapping
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.predicting.predict import (
    DEFAULT_TIMEOUT_SECONDS,
    compile_device,
    make_request,
    stop_rule,
)
from vramcast.processes.progress import Report, ignore
from vramcast.records.prediction import Prediction
from vramcast.records.sensitivity import KnobEffect, Sensitivity
from vramcast.simulate.many import try_cases
from vramcast.workload import Workload, joined

# These do not change the sizes of tensors.
NOT_SIZES = ("seed", "num_workers", "log_every")
SEQ_LEN_STEP = 256
MOST_KNOBS = 24


def sensitivity(
    workload: Workload,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    steps: int | None = None,
    whole: bool = False,
    progress: Report = ignore,
    knobs: Mapping[str, Any] | None = None,
    **more_knobs: Any,
) -> Sensitivity:
    """What one more sample, more tokens, a wider or deeper model take: each knob alone.

    `sensitivity("train.py:build", gpu="rtx-4090")`. A value that the workload refuses is doubled
    instead.
    """
    started = time.perf_counter()
    values = joined(knobs, more_knobs)

    def predicted(changes: list[dict[str, int]]) -> list[Prediction | VramcastError]:
        shown = [" ".join(f"{name}={value}" for name, value in each.items()) for each in changes]
        requests = []
        for each in changes:
            request = make_request(workload, {**values, **each}, gpu, memory, allocator)
            stop = stop_rule(request, steps, whole)
            requests.append({**request, **stop, "gpus": [request["gpu"]]})
        answers = try_cases(requests, timeout, progress=progress, shown=shown)
        return [
            one
            if isinstance(one, VramcastError)
            else Prediction.from_dict(next(iter(one["predictions"].values())))
            for one in answers
        ]

    compile_device(progress)
    (base,) = predicted([{}])
    if isinstance(base, VramcastError):
        raise base
    sizes = _sizes(base)
    others = {name: _more(name, value) for name, value in sizes.items()}
    found = dict(zip(sizes, predicted([{name: others[name]} for name in sizes]), strict=True))
    # Many sizes must be multiples of others. Twice the size often is one.
    again = [
        name
        for name, one in found.items()
        if isinstance(one, VramcastError) and others[name] != 2 * sizes[name]
    ]
    if again:
        others |= {name: 2 * sizes[name] for name in again}
        found |= zip(again, predicted([{name: others[name]} for name in again]), strict=True)
    return Sensitivity(
        workload=base.workload,
        knobs=base.knobs,
        gpu=base.gpu,
        capacity_bytes=base.capacity_bytes,
        peak_reserved_bytes=base.peak_reserved_bytes,
        peak_allocated_bytes=base.peak_allocated_bytes,
        step_seconds=base.step_seconds,
        effects=[_effect(name, sizes[name], others[name], found[name], base) for name in sizes],
        allocator_settings=base.allocator_settings,
        torch_version=base.torch_version,
        seconds=time.perf_counter() - started,
    )


def _sizes(base: Prediction) -> dict[str, int]:
    sizes = {
        name: value
        for name, value in base.knobs.items()
        if type(value) is int and value > 0 and name not in NOT_SIZES
    }
    if not sizes:
        raise UsageError(
            f"{base.workload} has no whole-number knob above zero.",
            "Give its function keyword arguments such as batch_size, "
            "or put {batch_size} into the line.",
        )
    return dict(list(sizes.items())[:MOST_KNOBS])


def _more(name: str, value: int) -> int:
    if name == "seq_len":
        return value + (SEQ_LEN_STEP if value > SEQ_LEN_STEP else max(1, value // 4))
    if name == "batch_size" or value < 16:
        return value + 1
    return value + value // 8


def _effect(
    name: str, value: int, other: int, found: Prediction | VramcastError, base: Prediction
) -> KnobEffect:
    if isinstance(found, VramcastError):
        error = " ".join(found.message.split())[:300]
        return KnobEffect(knob=name, value=value, other_value=other, error=error)
    more_seconds = None
    if found.step_seconds is not None and base.step_seconds is not None:
        more_seconds = found.step_seconds - base.step_seconds
    return KnobEffect(
        knob=name,
        value=value,
        other_value=other,
        more_reserved_bytes=found.peak_reserved_bytes - base.peak_reserved_bytes,
        more_allocated_bytes=found.peak_allocated_bytes - base.peak_allocated_bytes,
        more_seconds=more_seconds,
        fits=found.fits,
    )
