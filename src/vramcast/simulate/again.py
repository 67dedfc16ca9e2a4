"""A workload that was simulated, simulated again under another rule, for a second answer."""

from __future__ import annotations

import contextlib
from typing import Any

from vramcast.errors import WorkloadError
from vramcast.forecast.forecast import forecast
from vramcast.simulate.job import Job
from vramcast.units import format_bytes


def as_eager(job: Job) -> dict[str, Any]:
    """What the step takes without torch.compile. It may not run without, which is no fault."""
    from vramcast.simulate.patches import torch_compile

    with contextlib.suppress(WorkloadError), torch_compile.switched_off(job.session.gpu):
        eager = job.run(
            lambda run: forecast(
                run, job.budget.of(run), workload=job.workload, knobs={}, is_detailed=False
            ),
            locate=False,
        )
        return {
            "eager_peak_reserved_bytes": eager.peak_reserved_bytes,
            "eager_step_seconds": eager.step_seconds,
        }
    return {}


def with_least(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """What it takes where NCCL's process group keeps no tensor longer than it must."""
    kept = job.session.gpu.kept_by_nccl
    kept.lets_go_early = True
    try:
        low: int = job.run(
            lambda run: (
                forecast(
                    run, job.budget.of(run), workload=job.workload, knobs={}, is_detailed=False
                ).peak_reserved_bytes
            )
        )
    finally:
        kept.lets_go_early = False
    shown = found["peak_reserved_bytes"]
    if low >= shown:
        return found
    limit = (
        "when NCCL's process group lets tensors go is a matter of time: the peak reserved may be "
        f"{format_bytes(low)}, and is expected at {format_bytes(shown)}, which is shown"
    )
    low = min(low, found["peak_reserved_bytes_low"])
    return {
        **found,
        "peak_reserved_bytes_low": low,
        "limits": sorted([*found["limits"], limit]),
    }
