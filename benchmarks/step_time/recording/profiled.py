"""Profiles the steps of a workload on a GPU. Used by record.py and one_by_one.py.

What it returns of a step has every operator that launched a kernel, in order, with what it was
called with and the seconds of its kernels, and what the host did meanwhile: seconds of its threads,
of the step's parts, and the Python functions that were called.
"""

from __future__ import annotations

import ast
import bisect
import fcntl
import inspect
import os
import re
import signal
import statistics
import sys
import textwrap
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from fused_kernels import Launches, recorded
from torch.autograd import DeviceType
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.profiler import ProfilerActivity, profile, record_function

from vramcast.suites.catalogue import SUITES
from vramcast.workload.knobs import bind_knobs
from vramcast.workload.loading import check_step, load_function
from vramcast.workload.reference import parse_reference

WARM_UP, MEASURED, ALONE, PROFILED = 4, 12, 6, 3
MOST_SECONDS, SLOW_SECONDS = 50, 15
STEP = "recorded step"
OPERATOR = "::"  # is in names of operators
SIDE_BY_SIDE = "side by side"  # the name of what kernels of one call save that run so
OF_DRIVER = re.compile("cu(da)?[A-Z]")
TOOL = 4  # of sys.monitoring

Step = Callable[[], Any]


def function_of(name: str, given: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Of a row of the suites, or of FILE.py:FUNCTION, with its knobs."""
    rows = {row.name: row for suite in SUITES.values() for row in suite}
    row = rows.get(name)
    function = load_function(parse_reference(row.workload if row else name))
    _import_what(function)
    return function, bind_knobs(function, {**row.knobs, **given} if row else given)


def kernels_of(name: str, lock: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Only the kernels, of a family of operators."""
    function, knobs = function_of(name, given)
    torch.manual_seed(0)
    step = check_step(function(**knobs))
    with _alone(lock):
        started = time.perf_counter()
        step()
        step()
        _synchronize()
        answer = {"row": name, "knobs": given, "prepared_seconds": time.perf_counter() - started}
        return answer | _profile(step, is_slow=False)


def profiled(
    name: str,
    lock: Path | None = None,
    given: dict[str, Any] | None = None,
    compiled: Path | None = None,
) -> dict[str, Any]:
    """Others may prepare theirs until `lock`. What compiles does so before, and `compiled` is then
    there."""
    function, knobs = function_of(name, given or {})
    torch.manual_seed(0)
    step = check_step(function(**knobs))
    if compiled:
        step()
        step()
        _synchronize()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        compiled.touch()
    with _alone(lock):
        started = time.perf_counter()
        for _ in range(WARM_UP):
            step()
        _synchronize()
        answer = {"row": name, "knobs": given or {}}
        answer["prepared_seconds"] = time.perf_counter() - started
        is_slow = answer["prepared_seconds"] > SLOW_SECONDS
        for part in (_timed, _alone_steps, _python_calls, _profile):
            try:
                answer |= part(step, is_slow)
            except Exception as error:  # the other parts are worth keeping
                answer[f"{part.__name__} failed"] = repr(error)
        return answer


def compiled(name: str, given: dict[str, Any]) -> None:
    """Runs a step as often as it takes until all that it compiles is in the cache."""
    function, knobs = function_of(name, given)
    torch.manual_seed(0)
    step = check_step(function(**knobs))
    step()
    step()
    _synchronize()


def measured(
    name: str, given: dict[str, Any], is_profiled: Callable[[float], bool]
) -> dict[str, Any]:
    """Times and peaks, of a process that has run nothing before. `is_profiled` is asked with the
    median seconds of a step whether its kernels are worth the time too."""
    function, knobs = function_of(name, given)
    torch.manual_seed(0)
    step = check_step(function(**knobs))
    started = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    _synchronize()
    answer: dict[str, Any] = {"row": name, "knobs": given}
    if torch.cuda.is_available():
        answer["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        answer["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    is_slow = time.perf_counter() - started > SLOW_SECONDS
    answer |= _timed(step, is_slow)
    seconds = statistics.median(answer["seconds"] or [answer["wall_seconds"]])
    parts = (_alone_steps, _python_calls, _profile, _fused) if is_profiled(seconds) else ()
    for part in parts:
        try:
            answer |= part(step, is_slow)
        except Exception as error:  # the other parts are worth keeping
            answer[f"{part.__name__} failed"] = repr(error)
    return answer


def _import_what(function: Callable[..., Any]) -> None:
    """What it imports itself, so that the GPU is not kept meanwhile."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            with suppress(Exception):  # the function itself will tell
                exec(ast.unparse(node), {})
    if "transformers" in inspect.getsource(inspect.getmodule(function) or function):
        with suppress(ImportError):
            import_module("transformers.modeling_utils")


@contextmanager
def _alone(lock: Path | None) -> Iterator[None]:
    if lock is None:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signal.alarm(MOST_SECONDS)  # whoever hangs must not keep the others from the GPU
        yield
        signal.alarm(0)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _timed(step: Step, is_slow: bool) -> dict[str, Any]:
    """Seconds of steps as `vramcast probe` takes them, and of every thread in them."""
    count = 3 if is_slow else MEASURED
    before, events = _thread_seconds(), []
    started = time.perf_counter()
    for _ in range(count):
        if torch.cuda.is_available():
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            step()
            pair[1].record()
            events.append(pair)
        else:
            step()
    _synchronize()
    wall = (time.perf_counter() - started) / count
    after = _thread_seconds()
    threads = {name: (after[name] - before.get(name, 0.0)) / count for name in after}
    return {
        "seconds": [a.elapsed_time(b) / 1e3 for a, b in events],
        "wall_seconds": wall,
        "thread_seconds": {name: s for name, s in threads.items() if s > 1e-5},
    }


def _thread_seconds() -> dict[str, float]:
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            running = int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
        is_main = int(task.name) == os.getpid()
        found["main" if is_main else f"{name} {task.name}"] = running
    return found


def _alone_steps(step: Step, is_slow: bool) -> dict[str, Any]:
    return {"alone": [_parts_of(step) for _ in range(2 if is_slow else ALONE)]}


def _parts_of(step: Step) -> dict[str, Any]:
    """Seconds from the start of a step, which nothing was queued before, to where the host is."""
    marks: list[tuple[str, float]] = []
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def marked(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            marks.append((f"{name} begins", time.perf_counter()))
            try:
                return call(*arguments, **named)
            finally:
                marks.append((f"{name} ends", time.perf_counter()))

        return wrapped

    hooks = [
        register_optimizer_step_pre_hook(
            lambda *_: marks.append(("update begins", time.perf_counter()))
        ),
        register_optimizer_step_post_hook(
            lambda *_: marks.append(("update ends", time.perf_counter()))
        ),
    ]
    torch.autograd.backward = marked("backward", backward)
    torch.autograd.grad = marked("backward", grad)
    _synchronize()
    try:
        started = time.perf_counter()
        step()
        issued = time.perf_counter() - started
        _synchronize()
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad
        for hook in hooks:
            hook.remove()
    done = time.perf_counter() - started
    parts: dict[str, float] = defaultdict(float)
    open_at: dict[str, float] = {}
    for mark, moment in marks:
        name, _, edge = mark.rpartition(" ")
        if edge == "begins":
            open_at.setdefault(name, moment)
        elif name in open_at:
            parts[name] += moment - open_at.pop(name)
    return {"issued": issued, "done": done, **parts}


def _python_calls(step: Step, _: bool) -> dict[str, Any]:
    """Of every thread, in one step."""
    counts: Counter[int] = Counter()
    functions: Counter[Any] = Counter()
    if hasattr(sys, "monitoring"):
        monitoring = sys.monitoring
        monitoring.use_tool_id(TOOL, "record")
        identity = threading.get_ident
        both = monitoring.events.PY_START | monitoring.events.PY_RESUME

        def count(code: Any, _: int) -> None:
            counts[identity()] += 1
            functions[code] += 1

        monitoring.register_callback(TOOL, monitoring.events.PY_START, count)
        monitoring.register_callback(TOOL, monitoring.events.PY_RESUME, count)
        monitoring.set_events(TOOL, both)
        step()
        _synchronize()
        monitoring.set_events(TOOL, 0)
        monitoring.free_tool_id(TOOL)
    main = threading.get_ident()
    others = sum(n for thread, n in counts.items() if thread != main)
    named: Counter[str] = Counter()
    for code, number in functions.items():
        named[f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_qualname}"] += number
    return {
        "python_calls": {"main": counts[main], "others": others},
        "python_functions": dict(named.most_common(400)),
    }


def _profile(step: Step, is_slow: bool) -> dict[str, Any]:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as recording:
        for _ in range(1 if is_slow else PROFILED):
            with record_function(STEP):
                step()
                _synchronize()
    return _steps_of(list(recording.profiler.kineto_results.events()))


def _fused(step: Step, _: bool) -> dict[str, Any]:
    """The kernels that torch.compile wrote for the step, and how they were called."""
    if "torch._inductor.runtime.triton_heuristics" not in sys.modules:
        return {}
    return {"fused": recorded(step, Launches())}


class Names:
    """Every distinct thing once; the others are its number."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def number(self, thing: Any) -> int:
        return self.known.setdefault(thing, len(self.known))


def _side_by_side(spans: list[tuple[int, int]]) -> int:
    """The nanoseconds that kernels take in all, less those in which one of them runs."""
    saved, until = 0, 0
    for start, end in sorted(spans):
        saved += max(0, min(end, until) - start)
        until = max(until, end)
    return saved


def _steps_of(events: list[Any]) -> dict[str, Any]:
    """Operators are [chain of names, shapes, dtypes, thread]; a call is [operator, microseconds
    from the start of the step to its first launch, [kernel, nanoseconds] ...]."""
    on_host = [e for e in events if e.device_type() == DeviceType.CPU]
    on_gpu = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    launches = {e.correlation_id(): e.start_ns() for e in on_host if OF_DRIVER.match(e.name())}
    steps = sorted((e.start_ns(), e.end_ns()) for e in on_host if e.name() == STEP)
    starts = [start for start, _ in steps]
    callers = {event.linked_correlation_id() for event in on_gpu}
    operators, kernels, threads = Names(), Names(), Names()
    described, num_operators = {}, Counter()
    nested: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for event in sorted(on_host, key=lambda e: (e.start_ns(), -e.duration_ns())):
        name, start, thread = event.name(), event.start_ns(), event.start_thread_id()
        if OF_DRIVER.match(name):
            continue
        around = nested[thread]
        while around and around[-1][0] <= start:
            around.pop()
        around.append((event.end_ns(), name))
        if steps and start > steps[-1][0]:
            num_operators[f"{threads.number(thread)} {name}"] += 1
        number = event.correlation_id()
        if number in callers and number not in described:
            chain = " > ".join(inner for _, inner in around if inner != STEP)
            shapes, dtypes = str(event.shapes()), " ".join(event.dtypes())
            described[number] = chain, shapes, dtypes, threads.number(thread)
    found: list[list[Any]] = [[] for _ in steps]
    calls: dict[int, list[Any]] = {}
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in sorted(on_gpu, key=lambda e: launches.get(e.correlation_id(), e.start_ns())):
        at = launches.get(event.correlation_id(), event.start_ns())
        index = bisect.bisect_right(starts, at) - 1
        if index < 0:
            continue
        caller = event.linked_correlation_id()
        kind = described.get(caller, ("", "[]", "", -1))
        call = calls.get(caller)
        # kernels that no operator has launched stand alone
        if call is None or OPERATOR not in kind[0].rpartition(" > ")[2]:
            call = calls[caller] = [operators.number(kind), (at - starts[index]) // 1000]
            found[index].append(call)
        call.append([kernels.number(event.name()), event.duration_ns()])
        spans[caller].append((event.start_ns(), event.end_ns()))
    for caller, call in calls.items():
        if (saved := _side_by_side(spans[caller])) and len(call) > 2 + 1:
            call.append([kernels.number(SIDE_BY_SIDE), -saved])
    return {
        "operators": list(operators.known),
        "kernels": list(kernels.known),
        "steps": found,
        "step_nanoseconds": [end - start for start, end in steps],
        "num_operators": dict(num_operators),
    }
