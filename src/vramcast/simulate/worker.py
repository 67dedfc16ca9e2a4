"""The task that simulates a workload, in a process in which the device is loaded before torch."""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError, WorkloadError
from vramcast.forecast.budget import DEFAULT_GPU, Budget, budget_for
from vramcast.forecast.forecast import batch_size_point, forecast
from vramcast.forecast.interpolate import over_sizes
from vramcast.forecast.largest import BatchSearch
from vramcast.forecast.timing.likeness import TABLE, table
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.gpus import catalogue, find_gpu
from vramcast.processes.channel import error_to_dict
from vramcast.processes.forked import in_forks
from vramcast.processes.lifetime import end_if_forked
from vramcast.processes.parallel import in_parallel
from vramcast.records.base import plain_value
from vramcast.records.prediction import BatchSizeCurve
from vramcast.records.store import locked_folder
from vramcast.simulate.accumulating import PASSES, accumulating
from vramcast.simulate.again import as_eager, with_bounds, with_more_boxes, with_other_kernels
from vramcast.simulate.build import needs_building
from vramcast.simulate.device import Device
from vramcast.simulate.job import Job
from vramcast.simulate.live_memory import LiveMemory
from vramcast.simulate.planned import plan_lengths
from vramcast.simulate.program_job import ProgramJob
from vramcast.simulate.quick_imports import quick_imports
from vramcast.simulate.session import STEPS, Session
from vramcast.tracing.files import write_files
from vramcast.tracing.snapshot import make_snapshot
from vramcast.tracing.trace import SimulatedRun
from vramcast.workload import bind_knobs, load_function, parse_reference, together
from vramcast.workload.knobs import described
from vramcast.workload.switches import Switches, apply_switches

MOST_STAGES = 16  # of a pipeline; more are not simulated without being asked for
OF_A_RANK = ("peak_allocated_bytes", "peak_reserved_bytes", "fits")
# With more checkpointed cases among many predictions, torch._dynamo, which takes seconds to import,
# is imported once for all.
FEW_CHECKPOINTED = 2
# the sessions of this process by GPU; a library that was imported with one GPU may keep using it
_sessions: dict[str, Session] = {}


@cache
def load_device() -> Device:
    """The device of this process. A fork server loads it once for all simulations."""
    return Device()


def preload() -> None:
    """Imports and reads what every simulation needs. The device must be loaded before torch; where
    it is not compiled yet, each simulation imports these itself later."""
    if not needs_building():
        with quick_imports():
            _import_all()


def _import_all() -> None:
    device = load_device()
    importlib.import_module("numpy.ma")  # np.unique imports it
    from vramcast.simulate import kernels, locations, ownership, patches, python_calls, recording

    kernels.install_for("aten", device.library)
    del locations, ownership, patches, python_calls, recording
    catalogue()
    shipped()
    table(TABLE)


def _budget(request: dict[str, Any], gpu: str | None) -> Budget:
    between = request.get("link"), request.get("network")
    return budget_for(gpu, request["memory_bytes"], request["allocator"], *between)


def _session_for(budget: Budget) -> Session:
    gpu = budget.gpu or find_gpu(DEFAULT_GPU)
    if gpu.name not in _sessions:
        _sessions[gpu.name] = Session(load_device(), gpu, budget.calibration)
    return _sessions[gpu.name]


def import_libraries(request: dict[str, Any], names: list[str]) -> None:
    """Imports libraries in a branch of a kept server, as a workload would. One that cannot be
    imported here is left to the workload."""
    budget = _budget(request, request["gpu"])
    with _session_for(budget).importing():
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def answer(request: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """The answer to a request: a prediction, a curve, a search or a plan. `tell` receives the
    progress of longer ones."""
    budget = _budget(request, request["gpu"])
    session = _session_for(budget)
    session.gpu.memory = _live_memory(session, budget)
    session.gpu.attention.asked_for = tuple(request.get("attention_order", ()))
    session.gpu.compiles = request.get("compiles", True)
    session.gpu.is_of_function = "line" not in request
    if "switches" in request:
        apply_switches(Switches(**request["switches"]))
    if "describe" in request:
        with session.importing():
            return {"knobs": described(load_function(parse_reference(request["target"])))}
    job = (ProgramJob if "line" in request else Job)(request, session, budget)
    if "world" in request and request.keys() & {"batch_sizes", "search", "plan", "gpus"}:
        job.use_rank(0)
    if "bind" in request:
        return _bound(job)
    if "cases" in request:
        return _cases(job, tell)
    if "batch_sizes" in request:
        return _curve(job, tell)
    if "search" in request:
        return _search(job, tell)
    if "plan" in request:
        return plan_lengths(job, tell)
    if "gpus" in request:
        return _in_passes(job) if request.get("passes", 1) > 1 else _on_several_gpus(job)
    return _of_ranks(job) if "world" in request else _prediction(job)


def _cases(job: Job, tell: Callable[[Any], None]) -> dict[str, Any]:
    """Many predictions of one function, each in a fork of this process, which has already done the
    workload's imports."""
    if sum("checkpoint" in str(case) for case in job.request["cases"]) > FEW_CHECKPOINTED:
        importlib.import_module("torch._dynamo")  # torch imports it where something is checkpointed
    job.build_once()

    def of(case: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
        def predicted(_: Any) -> dict[str, Any]:
            try:
                return answer({**case, "target": job.request["target"]}, lambda _: None)
            except VramcastError as error:
                return {"error": error_to_dict(error)}

        return predicted

    cases = list(map(of, job.request["cases"]))
    return {"answers": in_forks(cases, lambda place: tell({"case": place}))}


def _bound(job: Job) -> dict[str, Any]:
    """The knobs in force, and the knobs with each of the changes. A text says why a change is
    refused."""
    given, found = together(job.request), list[dict[str, Any] | str]()
    for change in job.request["bind"]:
        try:
            changed = bind_knobs(job.function, {**given, **change})
            found.append({name: plain_value(value) for name, value in changed.items()})
        except WorkloadError as error:
            found.append(error.message)
    return {
        "knobs": {name: plain_value(value) for name, value in job.knobs.items()},
        "bound": found,
    }


def _of_ranks(job: Job) -> dict[str, Any]:
    """The prediction of the rank that needs the most memory, with the memory of all simulated
    ranks.

    One rank may fail where another does not, because it lacks data that other ranks would send.
    """
    world = job.request["world"]

    def of(rank: int) -> Callable[[Any], tuple[dict[str, Any], Sequence[int]] | WorkloadError]:
        def predicted(_: Any) -> tuple[dict[str, Any], Sequence[int]] | WorkloadError:
            job.use_rank(rank)
            try:
                return _with_stages(job)
            except WorkloadError as error:
                return error

        return predicted

    found: dict[int, dict[str, Any]] = {}
    failed: dict[int, WorkloadError] = {}
    to_do = list(world["ranks"])
    while to_do:
        answers = zip(to_do, in_forks(list(map(of, to_do))), strict=True)
        stages: set[int] = set()
        for rank, one in answers:
            if isinstance(one, WorkloadError):
                failed[rank] = one
            else:
                found[rank], of_pipeline = one
                stages.update(of_pipeline)
        is_open = world["are_default_ranks"] and len(stages) <= MOST_STAGES
        to_do = sorted(stages - found.keys() - failed.keys()) if is_open else []
    if not found:
        raise next(iter(failed.values()))
    worst = max(found, key=lambda rank: (found[rank]["peak_reserved_bytes"], -rank))
    limits = [
        f"rank {rank} could not be simulated, and the answer is without it: "
        + one.message.replace("\n", " ")[:200]
        for rank, one in failed.items()
    ]
    answer = found[worst]
    return {
        **answer,
        "limits": sorted([*answer["limits"], *limits]),
        "world_size": world["size"],
        "ranks": _distinct_ranks(found),
    }


def _distinct_ranks(found: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The ranks with different memory. One of those that take the same stands for the others."""
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rank in sorted(found):
        told = {name: found[rank][name] for name in OF_A_RANK}
        same = distinct.setdefault(
            tuple(told.values()),
            {"rank": rank, **told, "step_seconds": found[rank]["step_seconds"], "alike": []},
        )
        if same["rank"] != rank:
            same["alike"].append(rank)
    return list(distinct.values())


def _prediction(job: Job) -> dict[str, Any]:
    return _with_stages(job)[0]


def _with_stages(job: Job) -> tuple[dict[str, Any], Sequence[int]]:
    """The prediction, and the ranks that have the stages of its pipeline."""
    has_trace = job.request.get("trace") is not None
    found, is_short, stages, keeps_by_time, tries_kernels, has_overlaps = job.run(
        lambda run: (
            *_predicted(job, run),
            run.pipeline_ranks,
            run.keeps_by_time,
            run.tries_kernels,
            run.asks_overlaps,
        ),
        locate_all=has_trace,
    )
    if keeps_by_time:
        found = with_bounds(job, found)
    # a whole program is not run several times: it may take minutes, and repeats its side effects
    if tries_kernels and "line" not in job.request:
        found = with_other_kernels(job, found)
    if has_overlaps and "line" not in job.request:
        found = with_more_boxes(job, found)
    if found["compilation"] and job.request.get("compares_eager"):
        found["compilation"] |= as_eager(job)
    return (_within_the_limit(job, found) if is_short else found), stages


def _within_the_limit(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """Runs the program again with a memory limit: it may catch torch.OutOfMemoryError and go on
    with less."""
    with contextlib.suppress(WorkloadError, SystemExit):
        limited, _ = job.run(
            lambda run: _predicted(job, run, only_if_it_fits=True),
            locate="gpus" not in job.request,
            locate_all=job.request.get("trace") is not None,
            limited=True,
        )
        return limited if limited["fits"] else found
    return found


def _predicted(
    job: Job, run: SimulatedRun, *, only_if_it_fits: bool = False
) -> tuple[dict[str, Any], bool]:
    """The prediction, and whether it needs more memory than there is. Writes the trace, if
    wanted."""
    folder, knobs = job.request.get("trace"), job.shown_knobs()
    budget = job.budget.of(run)
    prediction = forecast(
        run,
        budget,
        workload=job.workload,
        knobs=knobs,
        # A table of several GPUs does not show details.
        is_detailed="gpus" not in job.request,
    )
    if folder is not None and (prediction.fits or not only_if_it_fits):
        trace = run.trace(
            workload=job.workload,
            knobs=knobs,
            gpu=job.request["gpu"],
            allocator_settings=budget.settings_text,
        )
        snapshot = make_snapshot(trace, budget.capacity_bytes)
        end_if_forked()
        with locked_folder(Path(folder)):
            force = job.request["force"] or only_if_it_fits
            write_files(Path(folder), trace, snapshot, force=force)
    is_over_limit = prediction.peak_reserved_bytes > job.session.gpu.memory.least_limit_bytes
    return prediction.to_dict(), is_over_limit or not prediction.fits


def _on_several_gpus(job: Job) -> dict[str, Any]:
    """Predictions for several GPUs. One simulation serves them all, unless the program asked which
    GPU it has."""
    first, *others = job.request["gpus"]

    def on_all(run: SimulatedRun) -> list[tuple[str | None, dict[str, Any], bool]]:
        found = [(first, *_predicted(job, run))]
        for name in [] if job.session.gpu.was_asked else others:
            _use_gpu(job, name)
            found.append((name, *_predicted(job, run)))
        return found

    predictions = {}
    for name, prediction, is_short in job.run(on_all, locate=False):
        if is_short:
            _use_gpu(job, name)
            prediction = _within_the_limit(job, prediction)
        # Keys in JSON are texts: "" where no GPU was named.
        predictions[name or ""] = prediction
    return {"predictions": predictions}


def _in_passes(job: Job) -> dict[str, Any]:
    """Predictions for a step that accumulates the gradients of several passes before its update."""
    passes, plain = job.request["passes"], None
    if passes > PASSES:
        plain = _on_several_gpus(job)["predictions"]
    job.function = accumulating(job.function)
    found: dict[str, Any] = _on_several_gpus(job)["predictions"]
    for name, two in found.items():
        # Every further pass takes as long as the second does.
        one = plain[name] if plain else None
        if not one or not one["step_seconds"] or not two["step_seconds"]:
            continue
        more = max(0.0, two["step_seconds"] - one["step_seconds"])
        factor = (one["step_seconds"] + (passes - 1) * more) / two["step_seconds"]
        for bound in ("", "_low", "_high"):
            two[f"step_seconds{bound}"] *= factor
    return {"predictions": found}


def _use_gpu(job: Job, name: str | None) -> None:
    job.budget = _budget(job.request, name)
    job.session.gpu.memory = _live_memory(job.session, job.budget)


def _live_memory(session: Session, budget: Budget) -> LiveMemory:
    total_bytes = (budget.gpu or find_gpu(DEFAULT_GPU)).total_bytes
    return LiveMemory(session.device, total_bytes, budget.settings, budget.capacity_bytes)


def _curve(job: Job, tell: Callable[[Any], None]) -> dict[str, Any]:
    def simulated(size: int) -> SimulatedRun:
        tell({"batch_size": size})
        return job.simulate({"batch_size": size})

    job.vary("batch_size", "--batch-sizes")
    traces = over_sizes(job.request["batch_sizes"], simulated)
    points = in_parallel(
        lambda at: batch_size_point(*at[:3], job.budget, simulated=at[3]), list(traces)
    )
    return BatchSizeCurve(
        workload=job.workload, gpu=job.request["gpu"], points=points, **job.facts()
    ).to_dict()


def _search(job: Job, tell: Callable[[Any], None]) -> dict[str, Any]:
    def simulated(size: int) -> SimulatedRun:
        tell({"batch_size": size})
        advice = "Limit the sizes with --max and --multiple-of."
        return job.simulate({"batch_size": size}, advice=advice)

    job.vary("batch_size", "max-batch")
    job.budget = job.budget.within(job.request["safety"])
    search = BatchSearch(simulated, job.budget, **job.request["search"])
    edge = search.run()
    fits_beyond = search.look_around(edge)
    smallest = None
    if edge.largest is None:
        sizes = {"batch_size": job.request["search"]["step"]}
        run = job.simulate(sizes, steps=STEPS, locate=True)
        smallest = forecast(run, job.budget, workload=job.workload, knobs={}).to_dict()
    return {
        **edge._asdict(),
        "fits_beyond": fits_beyond,
        "points": [asdict(point) for point in search.points.values()],
        "smallest": smallest,
        "knobs": job.shown_knobs(),
        **job.facts(),
    }
