"""`vramcast probe` on the CPU: examples, output, full disks, Ctrl-C, kill -9. Real processes.

Two commands run at a time, before the tests that ask for them: importing torch takes most of it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_SECONDS, comes_true

from vramcast.probing.run_folder import read_measurement

VRAMCAST = str(Path(sys.executable).with_name("vramcast"))
FAULTS = Path(__file__).with_name("faults.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
PHASES = ("start", "build", "warm-up", "measure")

# the disk is full from the moment the workload has made the file
FULL_DISK = """
import errno, os, sys
sync = os.fsync
def fsync(descriptor):
    if os.path.exists("full"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sync(descriptor)
os.fsync = fsync
from vramcast.cli.main import main
sys.argv[0] = "vramcast"
main()
"""
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


def waiting(phase: str) -> list[str]:
    return probe(
        f"{FAULTS}:waits",
        f"phase={'build' if phase == 'start' else phase}",
        "started=started",
        "--steps",
        "5",
    )


CASES: dict[str, list[str]] = {
    **{f"interrupt in {phase}": [VRAMCAST, *waiting(phase)] for phase in PHASES},
    "kill the parent": [VRAMCAST, *waiting("measure")],
    "disk full after": [
        sys.executable,
        "-c",
        FULL_DISK,
        *probe(f"{FAULTS}:fills_the_disk", "full=full", "--steps", "3"),
        "--json",
    ],
    "disk full before": [VRAMCAST, *probe(f"{FAULTS}:good")],
    "gpt": [VRAMCAST, *probe(EXAMPLES / "gpt.py", "batch_size=2", *TINY["gpt"], "--steps", "3")],
    "recurrent": [
        VRAMCAST,
        *probe(EXAMPLES / "recurrent.py", "batch_size=2", *TINY["recurrent"], "--steps", "20"),
        "--json",
    ],
    "huggingface": [
        VRAMCAST,
        *probe(EXAMPLES / "huggingface.py", "batch_size=2", *TINY["huggingface"], "--steps", "3"),
        "--json",
    ],
}


def no_files_larger_than_nothing() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    comes_true(lambda: path.exists() or process.poll() is not None)
    assert path.exists(), "the test would pass for nothing"


def run_case(name: str, folder: Path, mark: Any) -> Ended:
    environment = {**os.environ, **mark.environment, "COLUMNS": "60", "NO_COLOR": "1"}
    process = subprocess.Popen(
        CASES[name],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
        preexec_fn=no_files_larger_than_nothing if name == "disk full before" else None,
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


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_ends_everything_and_keeps_the_steps_that_were_measured(
    command: Command, phase: str
) -> None:
    done = command(f"interrupt in {phase}")
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
    command: Command,
) -> None:
    done = command("disk full after")
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


@pytest.mark.parametrize("name", ["recurrent", "huggingface"])
def test_json_is_exactly_one_object_and_nothing_else_is_said(command: Command, name: str) -> None:
    done = command(name)
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
    assert ("step_time_explosion" in record["verdict"]["not_judged"]) is (name == "huggingface")


def test_the_view_for_people_fits_a_narrow_terminal_and_has_no_colours_in_a_pipe(
    command: Command,
) -> None:
    done = command("gpt")
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
