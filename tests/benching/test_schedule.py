"""Where trials run: the GPUs that are used, and the queue that feeds them. No process is started
here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import PATIENCE_SECONDS, comes_true

from vramcast.benching import workers
from vramcast.benching.workers import gpus_here, run_everywhere, this_machine
from vramcast.processes.ask import FailureKind, TaskFailed
from vramcast.records.measurement import Device


class Pretended:
    """A worker that does nothing, until it is stopped where it is told to hang."""

    def __init__(self) -> None:
        self.is_stopped, self.was_left = threading.Event(), False

    def __enter__(self) -> Pretended:
        return self

    def __exit__(self, *_: object) -> None:
        self.was_left = True

    def stop(self) -> None:
        self.is_stopped.set()

    def train(self, request: dict[str, Any]) -> Iterator[Any]:
        if request.get("hang"):
            assert self.is_stopped.wait(PATIENCE_SECONDS)
            raise TaskFailed(FailureKind.STOPPED, "The process was stopped.")
        yield {"step": 1}


def test_every_place_takes_the_next_job_when_its_own_has_ended() -> None:
    """The first worker is held up until all the others are done: no job waits for it."""
    crew, done, rest_done = [Pretended(), Pretended()], [], threading.Event()

    def do(job: int, worker: Any) -> None:
        if job == 0:
            assert rest_done.wait(PATIENCE_SECONDS)
        done.append((job, crew.index(worker)))
        if len(done) == 4:
            rest_done.set()

    run_everywhere([partial(do, job) for job in range(5)], crew)  # type: ignore[arg-type]
    assert [job for job, _ in done] == [1, 2, 3, 4, 0]
    assert len({worker for job, worker in done if job > 0}) == 1
    assert all(worker.was_left for worker in crew)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_what_one_raises_stops_the_others_and_is_raised(problem: type[BaseException]) -> None:
    crew, ended = [Pretended(), Pretended()], []

    def do(job: str, worker: Any) -> None:
        if job == "raises":
            raise problem
        ended.append(list(worker.train({"hang": True})))

    with pytest.raises(problem):
        jobs = [partial(do, job) for job in ("hangs", "raises", "never begun")]
        run_everywhere(jobs, crew)  # type: ignore[arg-type]
    assert ended == []
    assert all(worker.was_left for worker in crew)


def test_after_a_failure_no_other_job_begins() -> None:
    begun = []

    def do(job: int, _: Any) -> None:
        begun.append(job)
        raise ValueError

    with pytest.raises(ValueError):
        run_everywhere([partial(do, job) for job in range(50)], [Pretended()])  # type: ignore[list-item]
    assert begun == [0]


def test_an_interruption_stops_the_places_and_waits_for_them() -> None:
    crew = [Pretended(), Pretended()]
    main_thread = threading.get_ident()

    def is_waiting() -> bool:
        """Whether the main thread waits for the jobs."""
        frame = sys._current_frames()[main_thread]
        return frame.f_code is threading.Condition.wait.__code__

    def do(job: str, worker: Any) -> None:
        if job == "interrupts":
            assert comes_true(is_waiting)
            os.kill(os.getpid(), signal.SIGINT)
        list(worker.train({"hang": True}))

    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            jobs = [partial(do, job) for job in ("hangs", "interrupts")]
            run_everywhere(jobs, crew)  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGINT, kept)
    assert all(worker.was_left for worker in crew)


def test_the_gpus_are_those_that_are_visible_or_all_like_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def states(*names: str) -> None:
        gpus = [SimpleNamespace(name=name, uuid=f"GPU-{index}") for index, name in enumerate(names)]
        monkeypatch.setattr(workers.nvml, "gpu_states", lambda: gpus)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    states("H200", "H200", "A2", "H200")
    assert gpus_here() == ["GPU-0", "GPU-1", "GPU-3"]
    states("H200", "A2")
    assert gpus_here() == [None]
    states()
    assert gpus_here() == [None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert gpus_here() == ["2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert gpus_here() == [None]
    assert len(this_machine(Device.CPU).workers(3)) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,4")
    assert len(this_machine(Device.CUDA).workers(2)) == 2
