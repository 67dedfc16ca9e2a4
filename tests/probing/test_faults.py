"""Whatever a worker does, the answer is a record with the right outcome. On the CPU."""

from __future__ import annotations

import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_SECONDS, Clock

from vramcast.errors import EnvironmentProblem, UsageError, WorkloadError
from vramcast.probing import manager
from vramcast.probing.facts import Facts
from vramcast.probing.manager import Prober
from vramcast.probing.stability import STALL_FLOOR_SECONDS
from vramcast.probing.trial import Trial
from vramcast.probing.worker import classify
from vramcast.processes import ask
from vramcast.records.measurement import Measurement

FAULTS = Path(__file__).with_name("faults.py")
STEPS = 5


@pytest.fixture(scope="module")
def mark(new_mark: Callable[[], Any]) -> Any:
    return new_mark()


@pytest.fixture(scope="module")
def prober(mark: Any) -> Iterator[Prober]:
    """One for all: what a fault does to the next trial is part of the test."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in mark.environment.items():
            patch.setenv(name, value)
        with Prober() as one:
            yield one
    assert mark.none_left()


def trial(workload: str, **changes: Any) -> Trial:
    settings = {
        name: changes.pop(name) for name in ("timeout_seconds", "warmup_steps") if name in changes
    }
    return Trial(
        workload=f"{FAULTS}:{workload}",
        knobs=changes,
        device="cpu",
        measure_steps=STEPS,
        **{"timeout_seconds": PATIENCE_SECONDS, **settings},
    )


def when(phase: str, do: Callable[[], None], facts: Facts) -> None:
    if facts.phase == phase:
        do()


STEPS_DONE = {"build": 0, "warm-up": 0, "measure": 1}


@pytest.mark.parametrize("phase", ["build", "measure"])
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, 40])
def test_a_worker_ended_by_a_signal_is_a_crash_with_its_name(
    prober: Prober, phase: str, number: int
) -> None:
    record = prober.run(trial("signalled", phase=phase, number=number))
    name = signal.Signals(number).name if number != 40 else "signal 40"
    assert (record.outcome, record.signal) == ("crashed", name)
    assert record.error is not None and name in record.error
    assert record.verdict.fail_reasons[-1] == "runtime_exception"
    assert record.steps_done == STEPS_DONE[phase]
    assert len(record.warmup_seconds) == (2 if phase == "measure" else 0)


def test_a_real_segmentation_fault_leaves_the_line_in_the_log(prober: Prober) -> None:
    record = prober.run(trial("segfault", phase="measure"))
    assert (record.outcome, record.signal) == ("crashed", "SIGSEGV")
    assert "string_at" in str(record.error)


@pytest.mark.parametrize(("workload", "phase"), [("hangs", "build"), ("hangs_deaf", "warm-up")])
def test_a_worker_that_hangs_is_ended_at_the_time_limit_with_its_phase(
    prober: Prober, mark: Any, workload: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, ask)
    times_up = partial(when, phase, lambda: clock.put_forward(3601.0))
    record = prober.run(trial(workload, phase=phase, timeout_seconds=3600.0), progress=times_up)
    assert (record.outcome, record.signal) == ("timeout", None)
    assert f"3600 s (last phase: {phase})" in str(record.error)
    assert mark.only_the_server()


def test_a_measured_step_that_stalls_is_ended_long_before_the_time_limit(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, ask, manager)

    def stall(facts: Facts) -> None:
        if len(facts.step_seconds) == 1:
            clock.put_forward(2 * STALL_FLOOR_SECONDS)

    record = prober.run(trial("hangs", phase="measure", timeout_seconds=3600.0), progress=stall)
    assert record.outcome == "timeout"
    assert "heartbeat_stall" in record.verdict.fail_reasons
    assert (record.steps_done, record.losses) == (1, [1.0] * 3)
    assert record.seconds < 3600.0


def test_a_time_limit_shorter_than_any_start_still_ends_the_worker(
    prober: Prober, mark: Any
) -> None:
    assert prober.run(trial("hangs", phase="build", timeout_seconds=1e-6)).outcome == "timeout"
    assert mark.only_the_server()


def test_rubbish_into_every_descriptor_loses_no_step(prober: Prober, tmp_path: Path) -> None:
    record = prober.run(trial("rubbish"), log=tmp_path / "log")
    assert (record.outcome, record.steps_done, record.losses) == ("ok", STEPS, [1.0] * (2 + STEPS))
    assert (tmp_path / "log").stat().st_size > 2 * 4 << 20


@pytest.mark.parametrize("how", ["os", "sys"])
@pytest.mark.parametrize("phase", ["build", "measure"])
def test_a_worker_that_leaves_with_exit_code_0_has_not_done_its_work(
    prober: Prober, phase: str, how: str
) -> None:
    record = prober.run(trial("exits", phase=phase, how=how))
    assert record.outcome == "crashed"
    assert record.verdict.stable is False
    assert ("exit code 0 and gave no answer" if how == "os" else "SystemExit") in str(record.error)
    assert how == "sys" or "on my way out" in str(record.error)
    assert record.steps_done == STEPS_DONE[phase]


@pytest.mark.parametrize("how", ["python", "torch"])
def test_the_hosts_memory_running_out_is_told_from_the_gpus(prober: Prober, how: str) -> None:
    record = prober.run(trial("out_of_memory", how=how))
    assert (record.outcome, record.out_of_memory_on) == ("out_of_memory", "host")
    assert "oom" in record.verdict.fail_reasons


@pytest.mark.parametrize("what", ["mute", "not unicode", "long", "plain", "interrupt", "missing"])
def test_whatever_is_raised_becomes_an_error_that_can_be_shown(prober: Prober, what: str) -> None:
    record = prober.run(trial("raises", what=what))
    assert record.outcome == ("unsupported" if what == "missing" else "crashed")
    assert record.error
    assert len(record.error) < 10_000
    assert all(c.isprintable() or c in "\n\t" for c in record.error)


@pytest.mark.parametrize("first", [0, 3])
def test_a_workload_that_closes_every_descriptor_is_a_crash_and_its_files_get_none_of_our_words(
    prober: Prober, first: int, tmp_path: Path
) -> None:
    own = tmp_path / "of the workload"
    record = prober.run(trial("closes_descriptors", first=first, reopen=str(own)))
    assert (record.outcome, record.steps_done) == ("crashed", 1)
    assert not re.search(r'{"(progress|answer|error|crashed)"', own.read_text())
    assert first == 0 or "connection to vramcast was closed" in str(record.error)
    assert "Traceback" not in str(record.error)


def test_a_workload_that_closes_its_output_is_measured_all_the_same(prober: Prober) -> None:
    assert prober.run(trial("closes_output")).outcome == "ok"


def test_losses_that_are_no_numbers_fail_their_gate(prober: Prober) -> None:
    record = prober.run(trial("loses", losses=["1", "2", "3", "nan", "inf", "4", "5", "6", "7"]))
    assert (record.outcome, record.verdict.fail_reasons) == ("ok", ["nan_or_inf"])
    assert math.isnan(record.losses[3] or 0.0) and record.losses[4] == math.inf
    assert Measurement.from_json(record.to_json()).verdict == record.verdict


def test_wrong_requests_are_raised_as_what_they_are(prober: Prober) -> None:
    no_module = Trial(workload="no_such_module:build", device="cpu")
    for request in (
        trial("absent"),
        trial("good", batch_size=0),
        trial("good", unknown=1),
        no_module,
    ):
        with pytest.raises(WorkloadError):
            prober.run(request)
    for knob in (object(), {1, 2}):
        with pytest.raises(UsageError, match="knob"):
            prober.run(trial("good", batch_size=knob))


def test_a_log_that_cannot_be_opened_is_a_clear_error(prober: Prober, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="absent"):
        prober.run(trial("good"), log=tmp_path / "absent" / "log")


def test_a_guard_killed_by_its_worker_is_a_crash_and_the_next_trial_works(
    prober: Prober, mark: Any
) -> None:
    record = prober.run(trial("ends_its_guard", number=signal.SIGKILL))
    assert record.outcome == "crashed"
    assert mark.only_the_server(), "the worker ended with it"
    assert prober.run(trial("good")).outcome == "ok"


def test_a_prober_outlives_the_thread_that_started_it_and_ends_all_when_interrupted(
    prober: Prober, mark: Any
) -> None:
    thread = threading.Thread(target=prober.run, args=[trial("good")])
    thread.start()
    thread.join()
    assert mark.only_the_server()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prober.run(
            trial("leaves_children", ends=False), progress=partial(when, "warm-up", interrupt)
        )
    assert mark.only_the_server()


COMPUTES = """
import torch
def build():
    a = torch.randn(1000, 1000, device='cuda')
    return lambda: float((a @ a).sum())
build()()
"""


def test_modules_imported_beforehand_may_compute_and_a_folder_may_hold_a_file_named_like_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "busy.py").write_text(COMPUTES.replace("cuda", "cpu"))
    (tmp_path / "work.py").write_text(COMPUTES)
    (tmp_path / "random.py").write_text("raise RuntimeError('not the one you want')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Prober(preload=["busy"]) as busy:
        record = busy.run(
            Trial(
                workload="work.py:build",
                device="cpu",
                measure_steps=2,
                timeout_seconds=PATIENCE_SECONDS,
            )
        )
    assert (record.outcome, record.steps_done) == ("ok", 2), record.error


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        (
            "OutOfMemoryError",
            "CUDA out of memory. Tried to allocate 2 GiB",
            ("out_of_memory", "gpu"),
        ),
        ("RuntimeError", "CUDA error: out of memory", ("out_of_memory", "gpu")),
        ("RuntimeError", "CUDA driver error: out of memory", ("out_of_memory", "gpu")),
        (
            "RuntimeError",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            ("out_of_memory", "gpu"),
        ),
        ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", ("out_of_memory", "gpu")),
        (
            "RuntimeError",
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
            ("out_of_memory", "host"),
        ),
        (
            "RuntimeError",
            "DefaultCPUAllocator: not enough memory: you tried to allocate 1",
            ("out_of_memory", "host"),
        ),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", ("crashed", None)),
        ("NotImplementedError", "anything", ("unsupported", None)),
        ("RuntimeError", "\"addmm\" not implemented for 'Float8'", ("unsupported", None)),
        ("ValueError", "out of memory of what I meant", ("crashed", None)),
    ],
)
def test_errors_are_told_apart_by_what_they_say(
    name: str, message: str, expected: tuple[str, str | None]
) -> None:
    error = type(name, (Exception,), {})(message)
    assert classify(error, message) == expected
