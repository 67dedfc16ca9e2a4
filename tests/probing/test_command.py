"""`vramcast probe` on the CPU: examples, output, full disks, Ctrl-C, kill -9.

What becomes of the whole command is tested in processes. Two run at a time, before the tests that
ask for them: importing torch takes most of it. Other tests call the command in this process.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import in_process
import pytest
from long_tests import long_unless
from waiting import PATIENCE_SECONDS, comes_true, let_ctrl_c_through

from vramcast.probing.manager import Prober
from vramcast.probing.run_folder import read_measurement

VRAMCAST = str(Path(sys.executable).with_name("vramcast"))
FAULTS = Path(__file__).with_name("faults.py")
EXAMPLES = Path(__file__).parents[2] / "examples"

TINY = {
    "gpt": ["seq_len=8", "width=16", "depth=1", "heads=2", "vocabulary=32"],
    "recurrent": ["seq_len=48", "width=16", "depth=1"],
    "huggingface": [
        "seq_len=8",
        "hidden_size=16",
        "intermediate_size=16",
        "layers=1",
        "heads=2",
        "key_value_heads=2",
        "vocab_size=32",
    ],
}


@dataclass
class Ended:
    code: int
    out: str
    err: str
    folder: Path  # where it worked
    mark: Any

    @property
    def run(self) -> Path:
        return self.folder / "run"


Command = Callable[[str], Ended]


def probe(workload: Path | str, *arguments: str) -> list[str]:
    return ["probe", str(workload), *arguments, "--device", "cpu", "--out", "run"]


def example(name: str, *options: str) -> list[str]:
    return probe(EXAMPLES / f"{name}.py", "batch_size=2", *TINY[name], *options)


def waiting(phase: str) -> list[str]:
    return probe(
        f"{FAULTS}:waits",
        f"phase={'build' if phase == 'start' else phase}",
        "started=started",
        "--steps",
        "5",
    )


# in processes
CASES: dict[str, list[str]] = {
    "interrupt in start": waiting("start"),
    "interrupt in measure": waiting("measure"),
    "kill the parent": waiting("measure"),
    "disk full before": probe(f"{FAULTS}:good"),
    "recurrent": example("recurrent", "--steps", "20", "--json"),
}


def no_files_larger_than_nothing() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    comes_true(lambda: path.exists() or process.poll() is not None)
    assert path.exists(), "the test would pass for nothing"


def run_case(name: str, folder: Path, mark: Any) -> Ended:
    environment = {**os.environ, **mark.environment, "COLUMNS": "60", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [VRAMCAST, *CASES[name]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
        preexec_fn=no_files_larger_than_nothing
        if name == "disk full before"
        else let_ctrl_c_through,
    )
    if name.startswith(("interrupt", "kill")):
        wait_for(folder / ("run/metrics.json" if name.endswith("start") else "started"), process)
        os.killpg(process.pid, signal.SIGKILL if name.startswith("kill") else signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return Ended(process.returncode, out, err, folder, mark)


@pytest.fixture(scope="module")
def command(
    tmp_path_factory: pytest.TempPathFactory, new_mark: Callable[[], Any]
) -> Iterator[Command]:
    pool = ThreadPoolExecutor(2)
    running: dict[str, Future[Ended]] = {
        name: pool.submit(
            run_case, name, tmp_path_factory.mktemp(name.replace(" ", "_")), new_mark()
        )
        for name in CASES
    }
    yield lambda name: running[name].result()
    pool.shutdown(cancel_futures=True)


Here = Callable[[list[str]], Ended]


@pytest.fixture
def here(
    warm_probes: Prober,
    tmp_path: Path,
    new_mark: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Here:
    mark = new_mark()
    for name, value in (*mark.environment.items(), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)

    def run(arguments: list[str]) -> Ended:
        done = in_process.vramcast(*arguments, folder=tmp_path, columns=60)
        return Ended(done.returncode, done.stdout, done.stderr, tmp_path, mark)

    return run


@pytest.fixture
def ctrl_c(tmp_path: Path) -> Iterator[None]:
    """Comes when the workload has made the file `started`."""
    is_over = threading.Event()

    def press() -> None:
        assert comes_true(lambda: (tmp_path / "started").exists() or is_over.is_set())
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    yield
    is_over.set()
    thread.join()
    signal.signal(signal.SIGINT, kept)


def num_children(process: subprocess.Popen[bytes] | None) -> int:
    assert process is not None
    return len(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())


@pytest.mark.parametrize("phase", ["build", "warm-up"])
def test_ctrl_c_before_a_step_was_measured_ends_the_run_and_what_it_has_started(
    here: Here, ctrl_c: None, warm_probes: Prober, phase: str
) -> None:
    done = here(waiting(phase))
    assert comes_true(lambda: num_children(warm_probes._process) == 0)
    check_interrupted(done, phase)


@pytest.mark.parametrize("phase", ["start", "measure"])
def test_ctrl_c_ends_everything_and_keeps_the_steps_that_were_measured(
    command: Command, phase: str
) -> None:
    check_interrupted(command(f"interrupt in {phase}"), phase)


def check_interrupted(done: Ended, phase: str) -> None:
    # a process that was just being started ends when the kernel sees its parent gone
    assert done.mark.none_left()
    assert (done.code, done.out) == (130, "")
    assert done.err == "Interrupted.\n"
    record = read_measurement(done.run)
    assert (record.outcome, record.verdict.stable) == ("unfinished", False)
    assert record.losses == {"measure": [1.0] * 3}.get(phase, [])
    assert (record.steps_done, len(record.warmup_seconds)) == (
        (1, 2) if phase == "measure" else (0, 0)
    )
    assert not [name for name in os.listdir(done.run) if name.startswith(".")]


def test_killing_the_parent_leaves_nothing_running_and_a_record_that_says_unfinished(
    command: Command,
) -> None:
    done = command("kill the parent")
    assert done.code == -signal.SIGKILL
    assert done.mark.none_left(), "nor what the workload has started in another session"
    assert read_measurement(done.run).outcome == "unfinished"


def test_a_disk_that_fills_up_while_it_runs_costs_the_folder_and_not_the_measurement(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        """Fails from the moment the workload has made the file."""
        if (tmp_path / "full").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    done = here([*probe(f"{FAULTS}:fills_the_disk", "full=full", "--steps", "3"), "--json"])
    assert done.code == 1
    record = json.loads(done.out)
    assert (record["outcome"], record["steps_done"]) == ("ok", 3)
    assert (
        "No space left" in done.err
        and done.err.count("vramcast: ") == 1
        and "Traceback" not in done.err
    )
    assert not [name for name in os.listdir(done.run) if name.startswith(".")]
    assert read_measurement(done.run).outcome == "unfinished"


def test_a_disk_that_takes_nothing_is_told_before_anything_runs(command: Command) -> None:
    done = command("disk full before")
    assert (done.code, done.out) == (1, "")
    assert (
        done.err.startswith("vramcast: ")
        and "cannot be written" in done.err
        and "Traceback" not in done.err
    )
    assert not done.run.exists()


@pytest.mark.parametrize("name", long_unless("huggingface".__eq__, ["recurrent", "huggingface"]))
def test_json_is_exactly_one_object_and_nothing_else_is_said(
    command: Command, here: Here, name: str
) -> None:
    is_long = name == "recurrent"
    done = command(name) if is_long else here(example(name, "--steps", "3", "--json"))
    assert done.err == ""
    assert done.out.count("\n") == 1
    record = json.loads(done.out)
    assert (record["outcome"], record["folder"]) == ("ok", "run")
    # On a machine that does other work too, one of twenty steps of milliseconds may be late.
    assert set(record["verdict"]["fail_reasons"]) <= {"step_time_explosion"}
    assert done.code == (0 if record["verdict"]["stable"] else 3)
    assert record["peak_allocated_bytes"] > 4 * record["num_parameters"]
    assert len(record["losses"]) == 2 + record["measure_steps"]
    assert {**record, "folder": None} == {
        **json.loads((done.run / "metrics.json").read_text()),
        "folder": None,
    }
    assert ("step_time_explosion" in record["verdict"]["not_judged"]) is not is_long


def test_the_view_for_people_fits_a_narrow_terminal_and_has_no_colours_in_a_pipe(
    here: Here,
) -> None:
    done = here(example("gpt", "--steps", "3"))
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 60
    assert "\x1b" not in done.out and "Traceback" not in done.out + done.err
    for part in (
        "✓ stable: 3 steps measured after 2",
        "batch_size=2",
        "median",
        "loss ",
        "not judged: step_time_explosion",
        "Measured on the CPU",
    ):
        assert part in done.out
    assert done.err == "Written to run\n"
    assert "vramcast probe" in (done.run / "run_cmd.txt").read_text()
