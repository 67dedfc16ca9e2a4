"""The command line as a person or a script meets it."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import pytest
from waiting import PATIENCE_SECONDS, comes_true, let_ctrl_c_through

from vramcast.cli.progress import progress_display
from vramcast.hardware.gpus import GPUS, find_gpu
from vramcast.processes.progress import Progress
from vramcast.simulate import build

pytestmark = pytest.mark.usefixtures("warm_simulations")
VRAMCAST = str(Path(sys.executable).with_name("vramcast"))
RECORDS = Path(__file__).parent / "reporting" / "records"
CONTRACT = (
    *(
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "process_bytes",
        "capacity_bytes",
        "fits",
        "num_alloc_retries",
        "num_parameters",
    ),
    *("breakdown_bytes", "step_seconds", "tokens_per_second", "limits", "torch_version", "seconds"),
)
WORKLOADS = """\
import os, time
import torch
from torch import nn

def train(*, batch_size: int = 4096, width: int = 64):
    print("building")
    layers = nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, width, device="cuda")

    def step():
        print("stepping")
        os.write(1, b"past Python's stdout\\n")
        os.system("echo from a child")
        hidden = model[1](model[0](x))  # the large one
        loss = model[2](hidden).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step

def slow():
    def step():
        open("started", "w").close()
        while True:
            time.sleep(0.1)
    return step
"""


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    build.build()  # not within a test's time limit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORKLOADS)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast(*arguments, folder=folder, columns=160)


def run_as_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(
        [VRAMCAST, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def prediction(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    record = json.loads(done.stdout)  # fails on anything before or after the one object
    assert isinstance(record, dict)
    assert done.stdout.count("\n") == 1
    return record


def test_json_is_one_object_with_the_whole_contract_though_the_workload_prints(
    folder: Path,
) -> None:
    done = run_as_process(folder, "predict", "work.py:train", "width=32", "--gpu", "h200", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    record = prediction(done)
    assert [key for key in CONTRACT if key not in record] == []
    assert sum(record["breakdown_bytes"].values()) == record["peak_reserved_bytes"]
    assert min(record["breakdown_bytes"].values()) >= 0
    assert record["peak_reserved_bytes"] >= record["peak_allocated_bytes"] > 4 * 4096 * 128
    assert record["process_bytes"] > record["peak_reserved_bytes"]
    assert record["num_parameters"] == 32 * 128 + 128 + 128 * 32 + 32
    assert record["knobs"] == {"batch_size": 4096, "width": 32}
    assert record["fits"] is True
    assert record["step_seconds"] is not None or record["step_seconds_reason"]
    assert 0 < record["capacity_bytes"] < find_gpu("h200").total_bytes
    assert 0 < record["seconds"] < PATIENCE_SECONDS


def test_what_does_not_fit_exits_with_3_and_memory_stands_above_the_gpu(folder: Path) -> None:
    done = run(folder, "predict", "work.py:train", "--gpu", "h200", "--memory", "30MiB", "--json")
    assert done.returncode == 3, done.stderr
    record = prediction(done)
    assert record["fits"] is False
    assert record["gpu"] == "h200"
    assert record["capacity_bytes"] == 30 * 2**20
    assert record["peak_reserved_bytes"] > record["capacity_bytes"]
    assert sum(record["breakdown_bytes"].values()) == record["peak_reserved_bytes"]


def test_the_view_for_people_says_whether_it_fits_and_what_takes_the_memory_and_where(
    folder: Path,
) -> None:
    done = run(folder, "predict", "work.py:train", "--gpu", "rtx-4090")
    assert done.returncode == 0, done.stderr
    line = next(
        number for number, text in enumerate(WORKLOADS.splitlines(), 1) if "the large one" in text
    )
    assert "✓ fits on rtx-4090" in done.stdout
    assert "activations" in done.stdout
    assert f"work.py:{line}" in done.stdout
    assert "predicted" in done.stdout
    assert "stepping" not in done.stdout


def test_many_batch_sizes_come_as_one_json_object(folder: Path) -> None:
    done = run(
        folder,
        "predict",
        "work.py:train",
        "--batch-sizes",
        "8,16,64-66",
        "--memory",
        "1GiB",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    record = prediction(done)
    assert [point["batch_size"] for point in record["points"]] == [8, 16, 64, 65, 66]
    assert all(point["fits"] for point in record["points"])


def test_the_gpus_are_listed_as_json_and_for_people(folder: Path) -> None:
    done = run(folder, "gpus", "--json")
    listed = json.loads(done.stdout)
    assert [gpu["name"] for gpu in listed] == [gpu.name for gpu in GPUS]
    assert all(gpu["total_bytes"] > 2**30 for gpu in listed)
    table = run(folder, "gpus")
    assert (done.returncode, table.returncode) == (0, 0)
    assert all(re.search(rf"^{re.escape(gpu.name)} ", table.stdout, re.MULTILINE) for gpu in GPUS)


def processor_seconds(*command: str) -> float:
    """Of a process, however many others share the cores: the least of several."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(4))


def test_help_comes_at_once() -> None:
    libraries = processor_seconds(sys.executable, "-c", "import typer, rich.console")
    assert processor_seconds(VRAMCAST, "--help") < 3 * libraries


def test_importing_vramcast_and_its_public_names_does_not_import_torch() -> None:
    code = (
        "import sys, vramcast, vramcast.cli.commands; "
        "[getattr(vramcast, name) for name in vramcast.__all__]; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_simulation_that_is_interrupted_ends_and_leaves_no_worker(
    folder: Path, number: signal.Signals, code: int, new_mark: Callable[[], Any]
) -> None:
    mark = new_mark()
    process = subprocess.Popen(
        [VRAMCAST, "predict", "work.py:slow"],
        cwd=folder,
        env={**os.environ, **mark.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=let_ctrl_c_through,
    )
    try:
        assert comes_true((folder / "started").exists)
        assert mark.at_least(2), "the test would pass for nothing"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == code
        assert out == ""
        assert "Traceback" not in err
        assert err == {130: "Interrupted.\n", 143: "Terminated.\n"}[code]
        assert mark.none_left()
    finally:
        process.kill()
        process.wait()


def with_typer(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A command that imports this in its place."""
    (folder / "typer.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "vramcast", "gpus"],
        env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        preexec_fn=let_ctrl_c_through,  # a shell in the background ignores it
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_are_imported_is_one_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Where a dataclass is made of a string, Python would end by the signal whatever is done."""
    done = with_typer(
        tmp_path, f"import os, time\nexec('os.kill(os.getpid(), {int(number)})')\ntime.sleep(60)\n"
    )
    said = "Interrupted.\n" if number == signal.SIGINT else "Terminated.\n"
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", said)


def test_a_signal_at_the_very_end_does_not_change_how_it_ended(tmp_path: Path) -> None:
    """Python's own end takes handlers of signals away before it deletes what there is."""
    text = (
        "import os, sys\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()):\n"
        f"        kill(pid, {int(signal.SIGTERM)})\n"
        "last = Last()\n"
        "print('done')\n"
        "sys.exit(3)\n"
    )
    done = with_typer(tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "")


def test_names_of_modules_and_files_are_neither_markup_nor_escape_codes(tmp_path: Path) -> None:
    folder = tmp_path / "x[" / "b]"  # together a closing tag
    folder.mkdir(parents=True)
    (folder / "w.py").write_text(
        "import torch\n\ndef build():\n    model = torch.nn.Sequential()\n"
        "    model.add_module('[/b]\\x1b[31m', torch.nn.Linear(64, 64, device='cuda'))\n"
        "    return lambda: model(torch.randn(8, 64, device='cuda')).sum().backward()\n"
    )
    for command in (
        ["predict", "x[/b]/w.py:build", "--trace", "y[/b]\x1b[31m"],
        ["diff", "y[/b]\x1b[31m", "y[/b]\x1b[31m"],
    ):
        done = run(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "[/b]" in done.stdout


# ------------------------------------------------------------------------------- where output goes
def test_a_full_disk_is_one_line_and_a_reader_who_has_seen_enough_is_no_failure() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([VRAMCAST, "zoo"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "vramcast: The output cannot be written: No space left on device.\n",
    )
    piped = subprocess.run(
        ["bash", "-c", '"$0" zoo | head -1; exit ${PIPESTATUS[0]}', VRAMCAST],
        capture_output=True,
        text=True,
    )
    assert (piped.returncode, piped.stderr) == (0, "") and piped.stdout.startswith("name")


def test_output_to_a_closed_stdout_is_lost_and_said_but_one_that_goes_into_a_file_is_not(
    tmp_path: Path,
) -> None:
    def closed(arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", f'"$0" {arguments} >&-', VRAMCAST],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        return done.returncode, done.stderr

    assert closed("gpus") == (1, "vramcast: The output cannot be written: Bad file descriptor.\n")
    assert closed("gpus 2>&-") == (1, "")
    assert closed(f"report {RECORDS / 'tune.json'} -o page.html") == (0, "Wrote page.html.\n")


def test_a_closed_stderr_keeps_nothing_from_stdout() -> None:
    code = (
        "from vramcast.cli import main; from vramcast.hardware import env; "
        "from vramcast.records.machine import Machine; env.look = Machine; main.main()"
    )
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" env 2>&-', sys.executable, code],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "GPU: none" in done.stdout and done.returncode == 3  # of a machine that has nothing


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["latin-1", "C"],
)
def test_an_encoding_without_some_characters_shows_others_for_them(
    environment: dict[str, str],
) -> None:
    command = [VRAMCAST, "compare", str(RECORDS / "bench")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True)
    # in place of ✓
    assert done.returncode == 0 and b" ? e1-50m" in done.stdout and done.stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "LONG"],
        ["report", str(RECORDS / "tune.json"), "-o", "LONG"],
        ["report", str(RECORDS / "tune.json"), "-o", "-", "--figures", "LONG"],
        ["compare", "LONG"],
        ["tune", "e1-50m", "--device", "cpu", "--out", "LONG"],
    ],
    ids=["report", "out", "figures", "compare", "tune"],
)
def test_a_name_too_long_for_a_file_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    long = 300 * "a"
    done = in_process.vramcast(
        *(long if word == "LONG" else word for word in arguments), folder=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr.startswith(f"vramcast: File name too long: {long}")
        and done.stderr.count("\n") == 1
    )
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_quotes_a_file_sends_no_control_characters_to_the_terminal(
    tmp_path: Path,
) -> None:
    done = in_process.vramcast("compare", str(tmp_path / "\x1b[31mred"))
    assert done.returncode == 2 and "\x1b" not in done.stderr and "\ufffd[31mred" in done.stderr


# ----------------------------------------------------------------------------------------- progress
def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, *reported: Progress) -> str:
    monkeypatch.setattr("vramcast.cli.progress.PATIENCE_SECONDS", 0.0)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_display() as report:
        assert comes_true(terminal.getvalue), "the bars begin"
        for one in reported:
            report(one)
        assert comes_true(lambda: reported[-1].name in terminal.getvalue())
    return terminal.getvalue()


def test_progress_is_a_bar_on_a_terminal_with_its_name_and_detail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown_on_a_terminal(monkeypatch, Progress("Planning", 3, 10, "length [128]"))
    assert "Planning" in text and "length [128]" in text


def test_work_without_a_known_end_goes_from_the_display_when_the_next_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown_on_a_terminal(
        monkeypatch, Progress("Compiling", line="once"), Progress("Simulating")
    )
    assert "once" in text and "Simulating" in text and "Compiling" not in text.splitlines()[-1]


def test_progress_that_is_no_terminal_is_only_the_lines_that_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_display() as report:
        report(Progress("tuning", 1, 10, "best so far 1.20x", line="amp applied"))
        report(Progress("tuning", 2, 10))
    assert capsys.readouterr() == ("", "amp applied\n")


def test_commands_are_listed_in_one_order_whatever_was_imported_first() -> None:
    code = (
        "import vramcast.cli.zoo, vramcast.cli.bench\n"
        "from vramcast.cli.commands import COMMANDS, app\n"
        "assert [c.name.replace('-', '_') for c in app.registered_commands] == list(COMMANDS)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("vramcast pro", ["probe"]), ("vramcast predict --pric", ["--price", "--prices"])],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: list[str]) -> None:
    """`vramcast --install-completion` lets the shell ask like this."""
    asked = {
        "_VRAMCAST_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    done = subprocess.run([VRAMCAST], env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stdout.split() == offered
