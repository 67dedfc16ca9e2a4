"""Every wrong request ends with exit code 2 and one message: what, which value, what to do next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import in_process
import pytest
from waiting import PATIENCE_SECONDS

from vramcast.simulate import build

pytestmark = pytest.mark.usefixtures("warm_simulations", "warm_probes")
VRAMCAST = str(Path(sys.executable).with_name("vramcast"))

WORKLOADS = """\
import os, sys, time
import torch

def good(*, batch_size: int = 8, scale: float = 1.0):
    x = torch.randn(batch_size, 16, device="cuda")
    return lambda: (x * scale).sum()

def raises():
    return load_data()

def load_data():
    return torch.randn(8, 4, device="cuda") @ torch.randn(5, 4, device="cuda")  # the line to blame

def returns_nothing():
    torch.randn(8, device="cuda")

def on_the_cpu():
    x = torch.randn(8)
    return lambda: x.sum()

def never_ends():
    def step():
        while True:
            time.sleep(0.1)
    return step

def calls_sys_exit():
    return lambda: sys.exit(5)

def calls_os_exit():
    return lambda: os._exit(7)
"""

# name: arguments after `vramcast`
CASES: dict[str, list[str]] = {
    "no file": ["predict", "absent.py:good"],
    "no function": ["predict", "work.py:goood"],
    "unknown knob": ["predict", "work.py:good", "batchsize=3"],
    "misfit": ["predict", "work.py:good", "batch_size=many"],
    "zero": ["predict", "work.py:good", "batch_size=0"],
    "negative": ["predict", "work.py:good", "batch_size=-3"],
    "unknown gpu": ["predict", "work.py:good", "--gpu", "rtx-9999"],
    "bad memory": ["predict", "work.py:good", "--memory", "lots"],
    "zero memory": ["predict", "work.py:good", "--memory", "0GiB"],
    "syntax error": ["predict", "syntax.py:good"],
    "raises": ["predict", "work.py:raises"],
    "returns nothing": ["predict", "work.py:returns_nothing"],
    "on the cpu": ["predict", "work.py:on_the_cpu"],
    "never ends": ["predict", "work.py:never_ends", "--timeout", "1"],
    "sys exit": ["predict", "work.py:calls_sys_exit"],
    "os exit": ["predict", "work.py:calls_os_exit"],
    "unknown command": ["frobnicate"],
    "line without --": ["predict", "--gpu", "h200", "python", "train.py", "--batch_size", "8"],
    "knob as an option": ["predict", "work.py:good", "--batch-size", "8"],
    "unknown setting": ["predict", "work.py:good", "--allocator", "nonsense:1"],
    "batch sizes": ["predict", "work.py:good", "--batch-sizes", "8,eleven"],
    "batch size zero": ["predict", "work.py:good", "--batch-sizes", "0-4"],
    "endless batch sizes": ["predict", "work.py:good", "--batch-sizes", "1-999999999999"],
    "endless value": ["zoo", "e5", "x" * 100_000],
    "a batch of 400 digits": ["predict", "work.py:good", "--batch-sizes", "9" * 400],
    "steps of 400 digits": ["probe", "work.py:good", "--device", "cpu", "--steps", "9" * 400],
    "endless parameters": ["zoo", "e5", "--params", "9" * 400],
    "timeout nan": ["predict", "work.py:good", "--timeout", "nan"],
    "empty batch sizes": ["predict", "work.py:good", "--batch-sizes", ""],
    "empty gpu": ["predict", "work.py:good", "--gpu", ""],
    "probe no file": ["probe", "absent.py:good"],
    "probe unknown knob": [
        "probe",
        "work.py:good",
        "batchsize=3",
        "--device",
        "cpu",
        "--out",
        "unknown_knob",
    ],
    "probe returns nothing": [
        "probe",
        "work.py:returns_nothing",
        "--device",
        "cpu",
        "--out",
        "returns_nothing",
    ],
    "probe knob without a value": ["probe", "work.py:good", "batch_size", "--device", "cpu"],
    "probe device": ["probe", "work.py:good", "--device", "tpu"],
    "probe empty device": ["probe", "work.py:good", "--device", ""],
    "probe steps": ["probe", "work.py:good", "--device", "cpu", "--steps", "0"],
    "probe many steps": ["probe", "work.py:good", "--device", "cpu", "--steps", "many"],
    "probe warm-up": ["probe", "work.py:good", "--device", "cpu", "--warmup", "-1"],
    "probe timeout nan": ["probe", "work.py:good", "--device", "cpu", "--timeout", "nan"],
    "probe timeout zero": ["probe", "work.py:good", "--device", "cpu", "--timeout", "0"],
    "probe bad memory": ["probe", "work.py:good", "--memory", "lots"],
    "probe zero memory": ["probe", "work.py:good", "--memory", "0GiB"],
    "probe empty memory": ["probe", "work.py:good", "--memory", ""],
    "probe memory of the cpu": ["probe", "work.py:good", "--device", "cpu", "--memory", "1GiB"],
    "probe trace of the cpu": ["probe", "work.py:good", "--device", "cpu", "--trace"],
    "probe unknown setting": [
        "probe",
        "work.py:good",
        "--device",
        "cpu",
        "--allocator",
        "nonsense:1",
    ],
    "probe empty out": ["probe", "work.py:good", "--device", "cpu", "--out", ""],
    "probe out is a file": ["probe", "work.py:good", "--device", "cpu", "--out", "work.py"],
    "probe out below a file": ["probe", "work.py:good", "--device", "cpu", "--out", "work.py/run"],
    "probe out is taken": ["probe", "work.py:good", "--device", "cpu", "--out", "taken"],
    "probe out is too long": ["probe", "work.py:good", "--device", "cpu", "--out", "x" * 300],
}
WORDED_BY_TYPER = ("unknown command", "knob as an option", "probe many steps")
# what becomes of a whole process; the others need none of their own
IN_A_PROCESS = ("no file", "never ends", "os exit", "unknown command")

Complaint = Callable[[str], str]


@pytest.fixture(scope="module")
def mark(new_mark: Callable[[], Any]) -> Any:
    return new_mark()


@pytest.fixture(scope="module")
def complaint(tmp_path_factory: pytest.TempPathFactory, mark: Any) -> Iterator[Complaint]:
    """stderr of a case, after what holds for all of them was checked."""
    build.build()  # or the first to run would compile within its time limit
    folder = tmp_path_factory.mktemp("bad_input")
    (folder / "work.py").write_text(WORKLOADS)
    (folder / "syntax.py").write_text("def good(:\n    pass\n")
    (folder / "taken").mkdir()
    (folder / "taken" / "metrics.json").write_text("of another run")
    environment = {**os.environ, **mark.environment}

    def run(name: str) -> subprocess.CompletedProcess[str]:
        if name not in IN_A_PROCESS:
            return in_process.vramcast(*CASES[name], folder=folder)
        return subprocess.run(
            [VRAMCAST, *CASES[name]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def checked(name: str) -> str:
        done = run(name)
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        if name not in WORDED_BY_TYPER:
            assert done.stderr.startswith("vramcast: ")
            assert done.stderr.count("vramcast: ") == 1, "one message"
            assert len(done.stderr.splitlines()) >= 2, "what is wrong, then what to do next"
        return done.stderr

    yield checked
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {
        "syntax.py",
        "taken",
        "work.py",
    }, "no run's folder"
    assert [path.name for path in (folder / "taken").iterdir()] == ["metrics.json"]


def test_a_file_that_is_not_there_is_named_with_the_files_that_are(complaint: Complaint) -> None:
    text = complaint("no file")
    assert "absent.py" in text
    assert "work.py" in text.splitlines()[-1]


def test_a_function_that_is_not_there_is_answered_with_those_that_are(complaint: Complaint) -> None:
    text = complaint("no function")
    assert "'goood'" in text
    assert "Did you mean 'good'?" in text
    assert all(name in text for name in ("raises", "load_data", "never_ends", "calls_os_exit"))


def test_an_unknown_knob_is_answered_with_the_knobs_there_are(complaint: Complaint) -> None:
    text = complaint("unknown knob")
    assert "'batchsize'" in text
    assert "batch_size=8" in text
    assert "scale=1.0" in text


def test_a_line_without_its_dashes_is_shown_with_them(complaint: Complaint) -> None:
    assert "-- python train.py" in complaint("line without --")


def test_a_knob_that_is_given_as_an_option_is_shown_as_a_knob(complaint: Complaint) -> None:
    assert "batch_size=8" in complaint("knob as an option")


def test_a_value_that_does_not_fit_the_annotation_is_shown_with_the_type_expected(
    complaint: Complaint,
) -> None:
    text = complaint("misfit")
    assert all(part in text for part in ("'batch_size'", "'many'", "int"))


@pytest.mark.parametrize(("case", "value"), [("zero", "0"), ("negative", "-3")])
def test_a_size_below_one_is_refused_with_its_value(
    complaint: Complaint, case: str, value: str
) -> None:
    text = complaint(case)
    assert f"'batch_size' is {value}" in text
    assert "positive" in text


def test_an_unknown_gpu_is_answered_with_those_known_and_with_the_way_round(
    complaint: Complaint,
) -> None:
    text = complaint("unknown gpu")
    assert all(part in text for part in ("'rtx-9999'", "h200", "rtx-4090", "t4", "--memory"))


@pytest.mark.parametrize(("case", "value"), [("bad memory", "'lots'"), ("zero memory", "'0GiB'")])
def test_a_bad_memory_size_is_shown_with_an_example_of_a_good_one(
    complaint: Complaint, case: str, value: str
) -> None:
    text = complaint(case)
    assert value in text
    assert "--memory 24GiB" in text


def test_a_file_with_a_syntax_error_is_shown_with_the_line(complaint: Complaint) -> None:
    text = complaint("syntax error")
    assert "syntax.py:1" in text
    assert "def good(:" in text


def test_a_build_that_raises_is_shown_by_the_lines_of_the_user_alone(complaint: Complaint) -> None:
    text = complaint("raises")
    lines = WORKLOADS.splitlines()
    blamed = next(number for number, line in enumerate(lines, 1) if "the line to blame" in line)
    assert f"work.py:{blamed} in load_data" in text
    assert f"work.py:{lines.index('    return load_data()') + 1} in raises" in text
    assert "shapes cannot be multiplied (8x4 and 5x4)" in text
    assert not any(
        part in text
        for part in ("site-packages", "torch/", "session.py", "worker.py", "loading.py")
    ), text


def test_a_build_that_returns_no_step_is_told_what_to_return(complaint: Complaint) -> None:
    text = complaint("returns nothing")
    assert "returned None" in text
    assert "return step" in text


def test_a_step_that_never_touches_the_gpu_is_told_to_move_there(complaint: Complaint) -> None:
    text = complaint("on the cpu")
    assert "never allocates" in text
    assert ".cuda()" in text


def test_a_step_that_never_ends_is_stopped_and_leaves_no_worker(
    complaint: Complaint, mark: Any
) -> None:
    text = complaint("never ends")
    assert "within 1 s" in text
    assert "--timeout" in text
    assert mark.none_left()


@pytest.mark.parametrize(("case", "code"), [("sys exit", 5), ("os exit", 7)])
def test_a_step_that_ends_the_process_is_told_so_with_its_exit_code(
    complaint: Complaint, case: str, code: int
) -> None:
    text = complaint(case)
    assert f"exit code {code}" in text
    assert "sys.exit()" in text


def test_an_unknown_command_is_named_and_help_is_pointed_to(complaint: Complaint) -> None:
    text = complaint("unknown command")
    assert "'frobnicate'" in text
    assert "vramcast --help" in text


def test_an_unknown_allocator_setting_is_named_and_the_known_ones_are_listed(
    complaint: Complaint,
) -> None:
    text = complaint("unknown setting")
    assert "'nonsense'" in text
    assert "expandable_segments" in text


@pytest.mark.parametrize(
    ("case", "value"), [("batch sizes", "'8,eleven'"), ("batch size zero", "'0-4'")]
)
def test_bad_batch_sizes_are_shown_with_an_example_of_good_ones(
    complaint: Complaint, case: str, value: str
) -> None:
    text = complaint(case)
    assert value in text
    assert "--batch-sizes 1-64" in text


def test_numbers_beyond_all_bounds_are_refused_at_once(complaint: Complaint) -> None:
    assert "999,999,999,999 sizes; at most 10,000" in complaint("endless batch sizes")
    assert "--params 50M" in complaint("endless parameters")
    assert "from 1 to 1,000,000,000,000" in complaint("a batch of 400 digits")
    assert "from 1 to 1,000,000,000,000" in complaint("steps of 400 digits")


def test_of_a_value_without_an_end_both_ends_are_shown(complaint: Complaint) -> None:
    text = complaint("endless value")
    assert len(text) < 20_000
    assert "characters left out" in text


def test_a_time_limit_that_is_no_number_is_refused(complaint: Complaint) -> None:
    assert "--timeout" in complaint("timeout nan")


@pytest.mark.parametrize("case", ["empty batch sizes", "empty gpu"])
def test_an_option_given_empty_is_refused_and_not_ignored(complaint: Complaint, case: str) -> None:
    assert "''" in complaint(case)


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("probe no file", ("absent.py", "work.py")),
        ("probe unknown knob", ("'batchsize'", "batch_size=8")),
        ("probe returns nothing", ("returned None", "return step")),
        ("probe knob without a value", ("'batch_size'", "key=value")),
        ("probe device", ("'tpu'", "--device cpu")),
        ("probe empty device", ("''", "--device cpu")),
        ("probe steps", ("not 0", "--steps 20")),
        ("probe many steps", ("--steps", "integer")),
        ("probe warm-up", ("not -1", "--warmup 2")),
        ("probe timeout nan", ("nan", "--timeout 600")),
        ("probe timeout zero", ("not 0 s", "--timeout 600")),
        ("probe bad memory", ("'lots'", "--memory 24GiB")),
        ("probe zero memory", ("'0GiB'", "--memory 24GiB")),
        ("probe empty memory", ("''", "--memory 24GiB")),
        ("probe memory of the cpu", ("--memory", "--device cpu")),
        ("probe trace of the cpu", ("--trace", "--device cpu")),
        ("probe unknown setting", ("'nonsense'", "expandable_segments")),
        ("probe empty out", ("''", "--out")),
        ("probe out is a file", ("work.py is a file", "--out")),
        ("probe out below a file", ("work.py/run", "--out")),
        ("probe out is taken", ("taken already holds a run", "--force")),
        ("probe out is too long", ("too long", "--out")),
    ],
)
def test_a_wrong_probe_is_told_the_value_and_what_to_give_instead(
    complaint: Complaint, case: str, parts: tuple[str, ...]
) -> None:
    text = complaint(case)
    assert all(part in text for part in parts), text
