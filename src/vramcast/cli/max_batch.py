"""`vramcast max-batch`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from vramcast.cli.progress import sign_of_life
from vramcast.errors import UsageError
from vramcast.hardware import nvml
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.max_batch import Measure, budget_bytes, max_batch
from vramcast.probing.manager import Prober
from vramcast.probing.preload import preload_for
from vramcast.probing.trial import Trial
from vramcast.records.max_batch import MaxBatch
from vramcast.workload import split_assignments

DOES_NOT_FIT = 3
WARMUP_STEPS, MEASURE_STEPS = (
    2,
    3,
)  # memory is all there after the second step; three times make a median


def run(
    workload: str,
    assignments: list[str],
    gpu: str | None,
    memory: str | None,
    allocator: str | None,
    confirm: bool,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    knobs = split_assignments(assignments)
    gpu = gpu or nvml.gpu_here()
    with ExitStack() as stack:
        measure = None
        if confirm and can_confirm(gpu):
            prober = stack.enter_context(Prober(preload_for(workload)))
            prober.start()  # torch is imported for the real runs while the search is simulated
            measure = _measure(
                prober,
                workload,
                knobs,
                lambda: budget_bytes(gpu, memory, options["safety"]),
                allocator,
            )
        with sign_of_life("Searching"):
            result = max_batch(
                workload,
                gpu=gpu,
                memory=memory,
                allocator=allocator,
                measure=measure,
                knobs=knobs,
                **options,
            )
    _show(result, as_json)
    return DOES_NOT_FIT if result.largest_batch is None else 0


def can_confirm(gpu: str | None) -> bool:
    """Where the GPU here is the one that is asked about."""
    if gpu is None:
        return bool(nvml.gpu_states())  # one that is not known by name: its memory is given
    try:
        return nvml.gpu_here() == find_gpu(gpu).name
    except UsageError:
        return False


def _measure(
    prober: Prober,
    workload: str,
    knobs: dict[str, str],
    cap: Callable[[], int | None],
    allocator: str | None,
) -> Measure:
    """How one size is run for real, under the same budget as the search: `cap` is asked when the request is known to be sound."""

    def measure(batch_size: int) -> Any:
        trial = Trial(
            workload=workload,
            knobs={**knobs, "batch_size": batch_size},
            memory_cap_bytes=cap(),
            allocator=allocator,
            warmup_steps=WARMUP_STEPS,
            measure_steps=MEASURE_STEPS,
        )
        return prober.run(trial)

    return measure


def _show(result: MaxBatch, as_json: bool) -> None:
    if as_json:
        print(result.to_json())
        return
    from rich.console import Console

    from vramcast.reporting.largest import show_max_batch

    show_max_batch(result, Console())
