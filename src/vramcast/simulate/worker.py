"""The task that simulates a workload, in a process in which the device is loaded before torch.

A plan takes longer and tells how far it is: a message for each length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from vramcast.errors import WorkloadError


def _budget(request: dict[str, Any]) -> Any:
    from importlib.metadata import version

    from vramcast.allocator.settings import AllocatorSettings
    from vramcast.forecast.forecast import Budget
    from vramcast.hardware.calibration.table import find as find_calibration
    from vramcast.hardware.gpus import find_gpu

    gpu = find_gpu(request["gpu"]) if request["gpu"] else None
    calibration, limits = find_calibration(gpu or find_gpu("h200"), version("torch"))
    return Budget(
        gpu=gpu,
        calibration=calibration,
        calibration_limits=limits,
        memory_bytes=request["memory_bytes"],
        settings=AllocatorSettings.parse(request["allocator"]),
        settings_text=request["allocator"],
    )


def _session(budget: Any) -> Any:
    from vramcast.hardware.gpus import find_gpu
    from vramcast.simulate.gpu import SimulatedGpu
    from vramcast.simulate.session import Session
    from vramcast.simulate.workspaces import gemm_workspaces

    gpu = budget.gpu or find_gpu("h200")
    table = budget.calibration
    simulated = SimulatedGpu(
        gpu.full_name,
        gpu.capability,
        gpu.total_bytes,
        gpu.num_multiprocessors,
        gpu.max_threads_per_multiprocessor,
    )
    measured = (table.gemm_workspace_bytes, table.gemm_lt_workspace_bytes) if table else None
    return Session(
        load_device(),
        simulated,
        gemm_workspaces(gpu.capability, measured),
        table.convolutions if table else None,
    )


@cache
def load_device() -> Any:
    """Of this process. A fork server loads it once for all simulations."""
    from vramcast.simulate import device

    return device.Device(device.load())


def answer(request: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """A prediction, a curve, a search or a plan. Who asks adds the seconds that it took."""
    from vramcast.workload import bind_knobs, load_function, parse_reference, together

    reference = parse_reference(request["target"])
    budget = _budget(request)
    session = _session(budget)
    import torch  # noqa: F401  the user's file would import it anyway

    function = load_function(reference)
    knobs = bind_knobs(function, together(request))
    if request["batch_sizes"] is not None:
        return _curve(request, session, function, knobs, budget)
    if request.get("search") is not None:
        return _search(request, session, function, knobs, budget)
    if request.get("plan") is not None:
        return _plan(request, session, function, knobs, budget, tell)
    from vramcast.forecast.forecast import forecast

    trace = session.run(function, knobs, locate_all=request["trace"] is not None)
    shown = _shown(knobs)
    prediction = forecast(
        trace,
        budget,
        workload=request["workload"],
        knobs=shown,
        seconds=0.0,
    )
    if request["trace"] is not None:
        _write_trace(request, trace, budget, shown)
    return prediction.to_dict()


def _write_trace(
    request: dict[str, Any], simulated: Any, budget: Any, knobs: dict[str, Any]
) -> None:
    from vramcast.tracing.files import write_files
    from vramcast.tracing.snapshot import make_snapshot

    trace = simulated.trace(
        workload=request["workload"],
        knobs=knobs,
        gpu=request["gpu"],
        allocator_settings=request["allocator"],
    )
    write_files(
        Path(request["trace"]),
        trace,
        make_snapshot(trace, budget.capacity_bytes),
        force=request["force"],
    )


def _trace_maker(
    request: dict[str, Any], session: Any, function: Any, knobs: dict[str, Any], limits: set[str]
) -> Any:
    """How to simulate one batch size; what is not modelled is added to `limits`."""
    if "batch_size" not in knobs:
        raise WorkloadError(
            f"{request['workload']} has no knob batch_size.",
            "Give the function a keyword argument batch_size.",
        )
    if "batch_size" in {**request["knobs"], **request["knobs_text"]}:
        raise WorkloadError(
            "batch_size was given, but it is what is searched or listed.", "Leave it out."
        )

    def trace_at(batch_size: int) -> Any:
        try:
            trace = session.run(
                function, {**knobs, "batch_size": batch_size}, steps=3, locate=False
            )
        except WorkloadError as error:
            # the user did not choose this size: say which it was, and how to bound the search
            bound = (
                " --max and --multiple-of keep the search to sizes that work."
                if request.get("search")
                else ""
            )
            raise WorkloadError(
                error.message, f"{error.advice} This was batch_size={batch_size}.{bound}".strip()
            ) from None
        limits.update(trace.notes)
        return trace

    return trace_at


def _curve(
    request: dict[str, Any],
    session: Any,
    function: Any,
    knobs: dict[str, Any],
    budget: Any,
) -> dict[str, Any]:
    import torch

    from vramcast.forecast.forecast import batch_size_point
    from vramcast.forecast.interpolate import over_sizes
    from vramcast.processes.parallel import in_parallel
    from vramcast.records.prediction import BatchSizeCurve

    limits: set[str] = set(budget.limits())
    sizes_and_traces = list(
        over_sizes(request["batch_sizes"], _trace_maker(request, session, function, knobs, limits))
    )
    points = in_parallel(
        lambda item: batch_size_point(item[0], item[1], item[2], budget, simulated=item[3]),
        sizes_and_traces,
    )
    return BatchSizeCurve(
        workload=request["workload"],
        gpu=request["gpu"],
        capacity_bytes=budget.capacity_bytes,
        points=points,
        limits=sorted(limits),
        torch_version=torch.__version__,
        seconds=0.0,
    ).to_dict()


def _search(
    request: dict[str, Any],
    session: Any,
    function: Any,
    knobs: dict[str, Any],
    budget: Any,
) -> dict[str, Any]:
    import torch

    from vramcast.forecast.forecast import forecast
    from vramcast.forecast.largest import BatchSearch

    limits: set[str] = set(budget.limits())
    trace_at = _trace_maker(request, session, function, knobs, limits)
    search = BatchSearch(trace_at, budget, **request["search"])
    edge = search.run()
    fits_beyond = search.look_around(edge)
    smallest = None
    if edge.largest is None:
        size = request["search"]["step"]
        trace = session.run(function, {**knobs, "batch_size": size})
        smallest = forecast(
            trace, budget, workload=request["workload"], knobs={}, seconds=0.0
        ).to_dict()
    return {
        **edge._asdict(),
        "fits_beyond": fits_beyond,
        "points": [asdict(point) for point in search.points.values()],
        "smallest": smallest,
        "knobs": {key: value for key, value in _shown(knobs).items() if key != "batch_size"},
        "capacity_bytes": budget.capacity_bytes,
        "limits": sorted(limits),
        "torch_version": torch.__version__,
        "seconds": 0.0,
    }


def _plan(
    request: dict[str, Any],
    session: Any,
    function: Any,
    knobs: dict[str, Any],
    budget: Any,
    tell: Callable[[Any], None],
) -> dict[str, Any]:
    import torch

    from vramcast.simulate.planned import PLANNED_KNOBS, LengthPlanner

    planner = LengthPlanner(request, session, function, knobs, budget)
    return {
        "stages": planner.run(tell),
        "knobs": {key: value for key, value in _shown(knobs).items() if key not in PLANNED_KNOBS},
        "capacity_bytes": budget.capacity_bytes,
        "limits": sorted(planner.limits),
        "torch_version": torch.__version__,
        "seconds": 0.0,
    }


def _shown(knobs: dict[str, Any]) -> dict[str, Any]:
    """As a record can hold them."""
    return {
        key: value if isinstance(value, int | float | str | bool | None) else str(value)
        for key, value in knobs.items()
    }
