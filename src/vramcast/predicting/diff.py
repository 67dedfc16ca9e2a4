"""`vramcast.diff`: two traces lined up, or two predictions, measurements or workloads compared."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramcast.errors import UsageError, VramcastError
from vramcast.predicting.predict import DEFAULT_TIMEOUT_SECONDS, predict
from vramcast.processes.progress import Report, ignore
from vramcast.records.measurement import Measurement
from vramcast.records.prediction import LargeTensor, Prediction
from vramcast.records.run_diff import ComparedNumber, RunDiff, RunSide
from vramcast.records.trace_diff import TraceDiff
from vramcast.reporting.loading import load
from vramcast.reporting.tensors import folded_modules
from vramcast.simulate.runner import shared_server
from vramcast.tracing.diff import diff as diff_traces
from vramcast.tracing.files import TRACE_NAME, begins_as_trace
from vramcast.units import grown
from vramcast.workload import name_of, parse_reference, split_assignments

NUM_SHOWN = 12
TIMES = ("step_seconds", "step_seconds_low", "step_seconds_high")
TOTALS = ("peak_reserved_bytes", "peak_allocated_bytes", "process_bytes", "capacity_bytes")
OTHERS = ("num_parameters", "num_alloc_retries", "tokens_per_second")
GIVE = (
    "Give two of the same kind: traces, predictions or measurements (what --json printed, in a "
    "file, or a run folder), or workloads with knobs."
)
Side = str | os.PathLike[str] | list[str]  # a launch line


def diff(
    a: Side,
    b: Side,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    allocator: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    a_knobs: Mapping[str, Any] | None = None,
    b_knobs: Mapping[str, Any] | None = None,
    fail_above: str | None = None,
    progress: Report = ignore,
) -> TraceDiff | RunDiff:
    """Where two memory traces differ, or what differs between two runs.

    A trace is a trace.json or a folder with one. A run is a file with a prediction or a
    measurement, a run folder, or a workload, which is predicted: `diff("train.py:build",
    "train.py:build", gpu="h200", a_knobs={"batch_size": 8}, b_knobs={"batch_size": 16})`.
    With `fail_above`, such as "2%" or "500MiB", the answer says whether B's peak grew by more.
    """
    if fail_above is not None:
        grown(0, fail_above)  # reports a malformed value before anything is predicted
    started = time.perf_counter()
    options = {"gpu": gpu, "memory": memory, "allocator": allocator}
    asks = a_knobs or b_knobs or any(value is not None for value in options.values())
    kinds = {_is_run(a), _is_run(b)}
    names = [name_of(one) if isinstance(one, list) else os.fspath(one) for one in (a, b)]
    if not asks and kinds == {False}:
        traces = diff_traces(*names)
        peaks = traces.a.peak_allocated_bytes, traces.b.peak_allocated_bytes
        return replace(traces, **_limit(*peaks, fail_above))
    if not asks and kinds == {True, False}:
        for name in names:
            if not _is_run(name) and not os.path.exists(name):
                raise UsageError(f"There is no file {name}.", GIVE)
        raise UsageError(f"{names[0]} and {names[1]} are of different kinds.", GIVE)
    with shared_server():
        runs = [
            _run(name, knobs or {}, {**options, "timeout": timeout, "progress": progress})
            for name, knobs in ((a, a_knobs), (b, b_knobs))
        ]
    found = diff_runs(*runs, names=names)
    peak = found.totals_bytes[0]
    limit = _limit(peak.a, peak.b, fail_above)
    return replace(found, seconds=time.perf_counter() - started, **limit)


def _limit(a: float | None, b: float | None, fail_above: str | None) -> dict[str, Any]:
    if fail_above is None:
        return {}
    if a is None or b is None:
        raise UsageError(
            f"--fail-above {fail_above}: one of the two runs has no peak memory.",
            "Leave --fail-above out, or compare runs that ended.",
        )
    most = grown(int(a), fail_above)
    return {"max_bytes": most, "over_max_bytes": max(0, int(b) - most)}


def _is_run(name: Side) -> bool:
    """Whether this is a record or a workload. Anything else is read as a trace, whose reader
    reports errors."""
    if isinstance(name, list):
        return True
    path = Path(name)
    if path.is_dir():
        return not (path / TRACE_NAME).exists()
    if path.suffix == ".py" or not path.exists():
        return path.suffix == ".py" or _is_workload(os.fspath(name))
    return path.is_file() and not begins_as_trace(path) and path.name != TRACE_NAME


def _is_workload(name: str) -> bool:
    if ".py:" in name:
        return True
    try:
        parse_reference(name)
    except VramcastError:
        return False
    return True


def _run(
    name: Side, knobs: Mapping[str, Any], options: Mapping[str, Any]
) -> Prediction | Measurement:
    if isinstance(name, list):
        return predict(name, knobs=knobs, **options)
    path = Path(name)
    if path.suffix == ".py" or not path.exists():
        return predict(os.fspath(name), knobs=knobs, **options)
    if knobs:
        raise UsageError(f"{name} is a record and has its own knobs.", "Leave the knobs out.")
    for loaded in load(path):
        if isinstance(loaded.record, Prediction | Measurement):
            return loaded.record
    raise UsageError(f"{name} holds no prediction and no measurement.", GIVE)


def diff_runs(
    a: Prediction | Measurement, b: Prediction | Measurement, *, names: Sequence[str]
) -> RunDiff:
    differ = [name for name in {**a.knobs, **b.knobs} if _knob(a, name) != _knob(b, name)]
    return RunDiff(
        a=_side(a, names[0]),
        b=_side(b, names[1]),
        knobs_a={name: a.knobs[name] for name in differ if name in a.knobs},
        knobs_b={name: b.knobs[name] for name in differ if name in b.knobs},
        totals_bytes=[_number(name, a, b) for name in TOTALS],
        times_seconds=[ComparedNumber(what=n, a=_seconds(a, n), b=_seconds(b, n)) for n in TIMES],
        others=[_number(name, a, b) for name in OTHERS],
        **_parts(a, b),
    )


def _knob(run: Prediction | Measurement, name: str) -> tuple[bool, object]:
    return name in run.knobs, run.knobs.get(name)


def _side(run: Prediction | Measurement, name: str) -> RunSide:
    timeline = run.timeline if isinstance(run, Prediction) else []
    last = max(timeline[-1][0], 1) if timeline else 1
    memory = run.step_memory if isinstance(run, Prediction) else None
    return RunSide(
        name=name,
        workload=run.workload,
        source="predicted" if isinstance(run, Prediction) else "measured",
        gpu=run.gpu,
        torch_version=run.torch_version,
        timeline=[(event / last, allocated) for event, allocated, _ in timeline],
        step=[(p[0] / memory.num_events, p[1]) for p in memory.points] if memory else [],
    )


def _number(name: str, a: object, b: object) -> ComparedNumber:
    return ComparedNumber(what=name, a=getattr(a, name, None), b=getattr(b, name, None))


def _seconds(run: Prediction | Measurement, name: str) -> float | None:
    if isinstance(run, Prediction):
        found: float | None = getattr(run, name)
        return found
    is_middle = name == "step_seconds" and run.times is not None
    return run.times.median_seconds if is_middle and run.times else None


def _parts(a: Prediction | Measurement, b: Prediction | Measurement) -> dict[str, Any]:
    """The comparisons that need two predictions; measurements do not have these parts."""
    if not isinstance(a, Prediction) or not isinstance(b, Prediction):
        return {}
    modules = folded_modules(group.module for run in (a, b) for group in run.alive_at_peak)
    return {
        "categories_bytes": _differing(a.breakdown_bytes, b.breakdown_bytes),
        "modules_bytes": _differing(_by_module(a, modules), _by_module(b, modules)),
        "tensors_bytes": _differing(
            _by_tensor(a.largest_tensors), _by_tensor(b.largest_tensors), is_partial=True
        ),
    }


def _by_module(run: Prediction, modules: Mapping[str, str]) -> dict[str, int]:
    """Bytes at the peak by module and category, with similar modules together."""
    found: dict[str, int] = {}
    for group in run.alive_at_peak:
        module = modules[group.module] or "no module"
        name = f"{module} ({group.category.replace('_', ' ')})"
        found[name] = found.get(name, 0) + group.num_bytes
    return found


def _by_tensor(tensors: Iterable[LargeTensor]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        what = tensor.name or tensor.operator.removeprefix("aten::")
        name = " ".join(filter(None, (what, tensor.module, tensor.source)))
        found[name] = found.get(name, 0) + tensor.num_bytes
    return found


def _differing(
    a: Mapping[str, int], b: Mapping[str, int], *, is_partial: bool = False
) -> list[ComparedNumber]:
    """The numbers that differ, largest difference first. In a partial list, a missing name does not
    mean 0."""
    absent = None if is_partial else 0
    found = [
        ComparedNumber(what=name, a=a.get(name, absent), b=b.get(name, absent))
        for name in {**a, **b}
        if a.get(name) != b.get(name)
    ]
    found.sort(key=lambda one: -abs((one.b or 0) - (one.a or 0)))
    return found[:NUM_SHOWN]


def with_line(words: Iterable[str], line: list[str]) -> Iterator[Any]:
    """The words with the launch line put before its knobs. A knob that comes a second time begins
    the second run, so the line is put before it again."""
    seen: set[str] = set()
    for word in words:
        name, equals, _ = word.partition("=")
        if equals and (not seen or name in seen):
            yield line
            seen = set()
        if equals:
            seen.add(name)
        yield word
    if not seen:
        yield line


def with_knobs(words: Iterable[Any]) -> tuple[list[Any], list[dict[str, str]]]:
    """From the words `A k=v B k=v`: the names, and the knobs of each."""
    names, knobs = list[Any](), list[list[str]]()
    for word in words:
        if isinstance(word, str) and "=" in word and names and not os.path.exists(word):
            knobs[-1].append(word)
        else:
            names.append(word)
            knobs.append([])
    return names, [split_assignments(each) for each in knobs]
