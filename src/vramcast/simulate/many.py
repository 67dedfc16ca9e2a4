"""Many simulations, on all cores of this machine or on a Ray cluster.

Every simulation has a process of its own, forked from one that has already imported torch. On a
cluster, every node keeps such a process.
"""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from vramcast import __version__
from vramcast.errors import EnvironmentProblem, VramcastError
from vramcast.hardware.cluster import connected
from vramcast.processes.channel import error_from_dict, error_to_dict
from vramcast.processes.progress import Progress, Report, ignore
from vramcast.records.store import append_line, read_file, read_lines
from vramcast.simulate import build
from vramcast.simulate.runner import Tell, shared_server, simulate
from vramcast.workload import parse_reference

ANSWERS_FILE = "answers.jsonl"
# If a node or worker is lost, Ray repeats its simulation elsewhere.
RAY_RETRIES = 5
# From so many cases on, the workload's imports are done once for all.
FEWEST_CASES, CASES_AT_A_TIME = 3, 32
Request = dict[str, Any]
Answer = dict[str, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Where:
    """Which processors simulate, and where answers are kept."""

    ray: str | None = None  # the address of a cluster; None: this machine
    folder: Path | None = None  # keeps the answers; the caller has locked it


HERE = Where()


class ClusterProblem(EnvironmentProblem):
    """A fault of the cluster, not of the workload."""


def try_all(
    requests: Sequence[Request],
    timeout_seconds: float,
    *,
    where: Where = HERE,
    progress: Report = ignore,
    name: str = "Predicting",
    tell: Tell = lambda _: None,
) -> list[Answer | VramcastError]:
    """Answers or errors in the order of the requests."""
    found: dict[int, Answer | VramcastError] = {}
    with contextlib.ExitStack() as stack:
        kept = _kept(where.folder)
        keys = [_key(request) if where.folder else "" for request in requests]
        found |= {index: kept[key] for index, key in enumerate(keys) if key in kept}
        missing = [index for index in range(len(requests)) if index not in found]

        def done(place: int, answer: Answer | VramcastError) -> None:
            index = missing[place]
            found[index] = answer
            if where.folder is not None and not isinstance(answer, VramcastError):
                append_line(where.folder / ANSWERS_FILE, {"key": keys[index], "answer": answer})
            _report(progress, name, found, len(requests))

        _report(progress, name, found, len(requests))
        if missing:
            ask, num_workers = stack.enter_context(asking(timeout_seconds, where.ray, tell))

            def answer_or_error(index: int, stop: threading.Event) -> Answer | VramcastError:
                try:
                    return ask(requests[index], stop)
                except EnvironmentProblem:
                    raise
                except VramcastError as error:
                    return error

            in_parallel(answer_or_error, missing, num_workers=num_workers, done=done)
    return [found[index] for index in range(len(requests))]


def try_cases(
    requests: Sequence[Request],
    timeout_seconds: float,
    *,
    where: Where = HERE,
    progress: Report = ignore,
    name: str = "Predicting",
    shown: Sequence[str] = (),
) -> list[Answer | VramcastError]:
    """Like `try_all`, for requests that call one function with different knobs: its imports are
    done once. Few requests, launch lines, several GPUs, clusters and kept answers are left to
    `try_all`.
    `shown` names the requests in the progress."""
    num_cores, num_gpus = os.cpu_count() or 1, len({request["gpu"] for request in requests})
    is_line = any("line" in request for request in requests)
    if len(requests) < FEWEST_CASES or where != HERE or num_gpus > 1 or is_line:
        return try_all(requests, timeout_seconds, where=where, progress=progress, name=name)
    found: list[Answer | VramcastError] = []
    for first in range(0, len(requests), CASES_AT_A_TIME):
        now = requests[first : first + CASES_AT_A_TIME]

        def tell(news: Any, first: int = first) -> None:
            place = first + news["case"]
            detail = shown[place] if shown else f"{place} of {len(requests)}"
            progress(Progress(name, place, len(requests), detail))

        tell({"case": 0})
        seconds = timeout_seconds * max(1, len(now) / num_cores)
        try:
            with shared_server():
                answers = simulate({**now[0], "cases": list(now)}, seconds, tell)["answers"]
        except EnvironmentProblem:
            raise
        except VramcastError:
            # A case that kills its process ends all others, so each gets a process of its own now.
            found += try_all(now, timeout_seconds, progress=progress, name=name)
            continue
        found += [error_from_dict(one["error"]) if "error" in one else one for one in answers]
    return found


def in_parallel(
    function: Callable[[Item, threading.Event], Result],
    items: Sequence[Item],
    *,
    num_workers: int | None = None,
    done: Callable[[int, Result], None] = lambda *_: None,
) -> list[Result]:
    """The results in the order of the items, as many at a time as there are cores.

    `done` is called with the index and the result of each, one at a time. If one fails, the event
    is set, which stops the others.
    """
    failed = threading.Event()
    with ThreadPoolExecutor(max_workers=num_workers or os.cpu_count() or 1) as pool:
        try:
            jobs = {pool.submit(function, item, failed): i for i, item in enumerate(items)}
            for job in as_completed(jobs):
                done(jobs[job], job.result())
        except BaseException:
            # also after an interruption no process is left running
            failed.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [job.result() for job in jobs]


def _report(
    progress: Report, name: str, found: dict[int, Answer | VramcastError], total: int
) -> None:
    if total > 1:
        progress(Progress(name, len(found), total, f"{len(found)} of {total}"))


Ask = Callable[[Request, threading.Event], Answer]


def asking(
    timeout_seconds: float, ray: str | None = None, tell: Tell = lambda _: None
) -> contextlib.AbstractContextManager[tuple[Ask, int | None]]:
    """A function that answers one question, and how many questions may be asked at once (None: as
    many as there are cores). The caller keeps the answers."""
    return _this_machine(timeout_seconds, tell) if ray is None else _cluster(ray, timeout_seconds)


@contextlib.contextmanager
def _this_machine(timeout_seconds: float, tell: Tell) -> Iterator[tuple[Ask, int | None]]:
    with shared_server():
        yield lambda request, stop: simulate(request, timeout_seconds, tell, stop), None


@contextlib.contextmanager
def _cluster(address: str, timeout_seconds: float) -> Iterator[tuple[Ask, int | None]]:
    with connected(address) as ray:
        task = ray.remote(_on_a_node).options(num_cpus=1, max_retries=RAY_RETRIES)

        def ask(request: Request, stop: threading.Event) -> Answer:
            if stop.is_set():
                raise VramcastError("Stopped, because another simulation failed.")
            try:
                answer: Answer = ray.get(task.remote(request, timeout_seconds, os.getcwd()))
            except ray.exceptions.RayError as problem:
                raise ClusterProblem(
                    f"The Ray cluster at {address} has lost a simulation {RAY_RETRIES + 1} times "
                    f"({type(problem).__name__}).",
                    "Look at its nodes with `ray status`, then run the same command again.",
                ) from None
            if "error" in answer:
                raise error_from_dict(answer["error"])
            return answer

        # Twice as many questions as processors, so that no processor waits for the next one.
        yield ask, max(1, 2 * int(ray.cluster_resources().get("CPU", 1)))


def _on_a_node(request: Request, timeout_seconds: float, folder: str) -> Answer:
    """Runs in a process of Ray, which answers many questions one after another."""
    with contextlib.suppress(OSError):  # a node may not have the caller's folder
        os.chdir(folder)
    try:
        build.build()
        _warm_server()
        return simulate(request, timeout_seconds)
    except VramcastError as error:
        return {"error": error_to_dict(error)}


@cache
def _warm_server() -> contextlib.ExitStack:
    """A server process that lives as long as this one."""
    stack = contextlib.ExitStack()
    stack.enter_context(shared_server())
    return stack


def _kept(folder: Path | None) -> dict[str, Answer]:
    lines = [] if folder is None else read_lines(folder / ANSWERS_FILE)
    kept = {str(line.get("key")): line.get("answer") for line in lines}
    return {key: answer for key, answer in kept.items() if isinstance(answer, dict)}


def _key(request: Request) -> str:
    """Identifies a request in the kept answers. A change of the files, of torch or of vramcast
    changes it."""
    what = [request, _file_hashes(request), version("torch"), __version__]
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _file_hashes(request: Request) -> list[str | None]:
    """Hashes of the workload's file, or of all files that a launch line names."""
    if "line" not in request:
        return [parse_reference(request["workload"]).file_hash()]
    files = [Path(word) for word in request["line"] if os.path.isfile(word)]
    return [hashlib.sha256(read_file(file)).hexdigest() for file in files]
