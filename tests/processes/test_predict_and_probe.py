"""The guarantees of the process layer, as users of predict and probe see them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import comes_true

import vramcast
from vramcast.errors import UsageError, VramcastError, WorkloadError
from vramcast.probing.manager import Prober
from vramcast.probing.trial import Trial
from vramcast.records.measurement import Device
from vramcast.simulate.runner import shared_server, simulation_server
from vramcast.workload import reference as references

HOSTILE = Path(__file__).with_name("hostile.py")
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def mark(new_mark: Callable[[], Any]) -> Any:
    return new_mark()


@pytest.fixture(scope="module", params=["predict", "probe"])
def run(request: pytest.FixtureRequest, mark: Any) -> Iterator[Command]:
    """`run(workload, **knobs)` predicts or probes, all forked from one process."""

    def predict(workload: str, **knobs: Any) -> Any:
        with shared_server(server):
            return vramcast.predict(workload, gpu="h200", **knobs)

    def probe(workload: str, **knobs: Any) -> Any:
        return prober.run(Trial(workload=workload, knobs=knobs, device=Device.CPU, measure_steps=2))

    with pytest.MonkeyPatch.context() as patch:
        for name, value in mark.environment.items():
            patch.setenv(name, value)
        with simulation_server() as server, Prober() as prober:
            yield predict if request.param == "predict" else probe
    assert mark.none_left()


@pytest.mark.parametrize("workload", ["good", "forks", "writes_everywhere", "parses_arguments"])
def test_neither_forks_nor_rubbish_nor_an_argument_parser_spoil_the_answer(
    run: Command, workload: str, mark: Any
) -> None:
    answer = run(f"{HOSTILE}:{workload}")
    assert answer.knobs in ({}, {"batch_size": 2, "width": 4})
    assert answer.peak_allocated_bytes > 0
    assert mark.only_the_server()


def test_a_process_that_is_killed_is_told_with_the_hosts_memory(run: Command) -> None:
    try:
        text = run(f"{HOSTILE}:killed").error
    except WorkloadError as problem:
        text = str(problem)
    assert "SIGKILL" in text and "memory" in text and "last words" in text
    assert "sys.exit()" not in text


def test_what_a_workload_starts_is_gone_with_the_answer(run: Command, mark: Any) -> None:
    run(f"{HOSTILE}:leaves_children")
    assert mark.only_the_server()


@pytest.mark.parametrize("call", ["predict('{}', gpu='h200', ", "probe('{}', device='cpu', "])
def test_everything_is_gone_when_whoever_asked_is_killed(
    call: str, new_mark: Callable[[], Any], tmp_path: Path
) -> None:
    mark = new_mark()
    call = f"{call.format(f'{HOSTILE}:leaves_children')} begun='{tmp_path}/begun')"
    path = os.pathsep.join(sys.path)
    asking = subprocess.Popen(
        [sys.executable, "-c", f"import vramcast; vramcast.{call}"],
        env={**os.environ, **mark.environment, "PYTHONPATH": path},
    )
    assert comes_true((tmp_path / "begun").exists)
    assert mark.at_least(5), "the test would pass for nothing"
    asking.kill()
    asking.wait()
    assert mark.none_left()


def test_a_workload_that_kills_those_who_watch_it_is_noticed_and_leaves_nothing_running(
    new_mark: Callable[[], Any],
) -> None:
    mark = new_mark()
    command = [sys.executable, "-m", "vramcast", "predict", f"{HOSTILE}:kills_its_watchers"]
    done = subprocess.run(
        command, env={**os.environ, **mark.environment}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "The process was ended together with the one that watched it." in done.stderr
    assert mark.none_left()


def test_a_registered_workload_is_found_in_the_process_that_runs_it(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HOSTILE.parent))
    monkeypatch.setattr(references, "_registered", {})
    vramcast.register("mine", "hostile:good")
    answer = run("mine", batch_size=3)
    assert (answer.workload, answer.knobs["batch_size"]) == ("mine", 3)


def test_a_knob_that_cannot_be_sent_is_one_message_and_leaves_no_process(
    run: Command, mark: Any
) -> None:
    for value in (object(), 1j):
        with pytest.raises(UsageError, match=f"knob.*{type(value).__name__}"):
            run(f"{HOSTILE}:good", width=value)
    assert mark.only_the_server()


def test_the_seconds_are_those_of_the_prediction_not_of_the_callers_processor(
    run: Command,
) -> None:
    while time.process_time() < 3.0:  # more than the answer takes
        sum(range(10_000))
    started = time.perf_counter()
    answer = run(f"{HOSTILE}:good")
    assert 0 < answer.seconds <= time.perf_counter() - started


def test_a_problem_of_the_workload_is_raised_by_its_class(run: Command) -> None:
    with pytest.raises(WorkloadError, match="no_such_function") as caught:
        run(f"{HOSTILE}:no_such_function")
    assert isinstance(caught.value, VramcastError) and caught.value.exit_code == 2
