"""max-batch: predicted without a GPU, and how an answer is confirmed with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vramcast
from vramcast.capacity import confirm
from vramcast.errors import UsageError, WorkloadError

VRAMCAST = str(Path(sys.executable).with_name("vramcast"))
GPT = "vramcast.suites.workloads.models:gpt"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([VRAMCAST, "max-batch", *arguments], capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def at_24_gib() -> dict[str, Any]:
    done = run(GPT, "autocast=bf16", "--gpu", "h200", "--memory", "24GiB", "--global-batch", "256", "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_predicted_largest_batch_is_the_one_an_h200_found_under_this_cap(at_24_gib: dict[str, Any]) -> None:
    """Measured there: 23 fits with one retry, 24 does not."""
    assert (at_24_gib["largest_batch"], at_24_gib["first_failing_batch"]) == (23, 24)
    assert at_24_gib["confirmed"] is False
    assert any("empties its cache" in note for note in at_24_gib["notes"])


def test_the_answer_and_the_next_size_were_simulated_themselves(at_24_gib: dict[str, Any]) -> None:
    attempts = {attempt["batch_size"]: attempt for attempt in at_24_gib["attempts"]}
    assert (attempts[23]["outcome"], attempts[24]["outcome"]) == ("ok", "out_of_memory")
    assert attempts[23]["simulated"] and attempts[24]["simulated"]
    assert {attempt["source"] for attempt in at_24_gib["attempts"]} == {"predicted"}
    assert len(attempts) == len(at_24_gib["attempts"])


def test_the_law_has_a_real_intercept_and_the_choices_stay_below_their_share(at_24_gib: dict[str, Any]) -> None:
    assert 1.5e9 < at_24_gib["allocated_law"]["intercept_bytes"] < 3e9
    assert at_24_gib["conservative"]["batch_size"] <= at_24_gib["recommended"]["batch_size"] < 23
    assert (at_24_gib["micro_batch"], at_24_gib["accumulation_steps"]) == (16, 16)


def test_limits_multiples_and_safety_are_respected() -> None:
    tiny = {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 2, "seq_len": 64}
    free = vramcast.max_batch(GPT, memory="1GiB", **tiny)
    bounded = vramcast.max_batch(GPT, memory="1GiB", maximum=37, multiple_of=8, **tiny)
    careful = vramcast.max_batch(GPT, memory="1GiB", safety=0.3, **tiny)
    assert free.largest_batch is not None and careful.largest_batch is not None
    assert (bounded.largest_batch, bounded.first_failing_batch) == (32, None)
    assert careful.largest_batch < free.largest_batch
    assert all(a.peak_reserved_bytes is None or a.peak_reserved_bytes <= 0.7 * 2**30 for a in careful.attempts if a.outcome == "ok")


def test_where_not_even_one_sample_fits_it_says_what_is_in_the_way() -> None:
    done = run(GPT, "autocast=bf16", "--memory", "512MiB", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert (answer["largest_batch"], answer["first_failing_batch"]) == (None, 1)
    assert answer["missing_bytes"] > 0
    assert len(answer["largest_tensors"]) == 3


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([GPT], "--gpu"),
        ([GPT, "batch_size=3", "--gpu", "h200"], "batch_size"),
        ([GPT, "--gpu", "h200", "--safety", "1.5"], "--safety"),
        ([GPT, "--gpu", "h200", "--safety", "0.9999999999999"], "--safety"),
        ([GPT, "--gpu", "h200", "--multiple-of", "9999999"], "--multiple-of 9999999"),
        ([GPT, "--gpu", "h200", "--max", "0"], "--max"),
        ([GPT, "--gpu", "h200", "--max", "4", "--multiple-of", "8"], "--max"),
        ([GPT, "--gpu", "rtx-9999"], "rtx-9999"),
        ([GPT, "--gpu", "h200", "--global-batch", "-1"], "--global-batch"),
    ],
)
def test_a_wrong_request_is_answered_with_the_value_and_exit_code_2(arguments: list[str], part: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def measurements(fits_up_to: int) -> Any:
    def measure(size: int) -> Any:
        outcome = "ok" if size <= fits_up_to else "out_of_memory"
        fields = dict.fromkeys(("peak_allocated_bytes", "peak_reserved_bytes", "num_alloc_retries", "times"))
        return SimpleNamespace(knobs={"batch_size": size}, outcome=outcome, error=None, **fields)

    return measure


@pytest.mark.parametrize(
    ("predicted", "truth", "tried"),
    [(23, 23, [23, 24]), (23, 24, [23, 24, 25]), (23, 22, [23, 22]), (23, 20, [23, 22, 20, 21]), (1, 0, [1])],
)
def test_confirming_runs_the_answer_and_its_neighbour_and_more_if_reality_disagrees(predicted: int, truth: int, tried: list[int]) -> None:
    largest, failing, attempts = confirm(predicted, predicted + 1, measurements(truth), step=1, limit=None)
    assert largest == (truth or None)
    assert failing == truth + 1
    assert [attempt.batch_size for attempt in attempts] == tried


def test_at_the_limit_given_no_larger_size_is_run() -> None:
    largest, failing, attempts = confirm(32, None, measurements(1000), step=8, limit=32)
    assert (largest, failing, [attempt.batch_size for attempt in attempts]) == (32, None, [32])


def test_a_size_that_crashes_on_the_gpu_is_not_said_not_to_fit() -> None:
    def crashes(size: int) -> Any:
        tried.append(size)
        return SimpleNamespace(**{**vars(measurements(1000)(size)), "outcome": "crashed", "error": "cuDNN said no"})

    tried: list[int] = []
    with pytest.raises(WorkloadError, match="batch_size=23 .*crashed: cuDNN said no"):
        confirm(23, 24, crashes, step=1, limit=None)
    assert tried == [23], "smaller ones would crash too"


def test_a_prediction_that_is_far_off_costs_few_real_runs() -> None:
    largest, failing, attempts = confirm(200_000, 200_001, measurements(150_000), step=1, limit=None)
    assert (largest, failing) == (150_000, 150_001)
    assert len(attempts) < 40


def from_rows(rows: str, select: str = "True", check: str = "pass") -> str:
    """A workload with a batch of `rows` rows, of which about half are used where `select`; `check` is run first."""
    return f"""
import torch

def build(*, batch_size: int = 1):
    {check}
    layer = torch.nn.Linear(512, 512, device="cuda")

    def step():
        y = layer(torch.randn({rows}, 512, device="cuda"))
        y = y[y.sum(1) > 0] if {select} else y
        if y.numel():
            y.sum().backward()

    return step
"""


def test_a_search_over_data_dependent_sizes_ends_soon(tmp_path: Path) -> None:
    """Interpolated and simulated sizes differ there: the edge was once moved one by one, for minutes."""
    (tmp_path / "w.py").write_text(from_rows("batch_size"))
    found = vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB", timeout=60)
    assert found.largest_batch is not None and found.first_failing_batch == found.largest_batch + 1
    assert len(found.attempts) < 200


def test_where_samples_are_small_the_recommended_size_still_comes_near_its_share(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("batch_size", select="False"))
    found = vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB")
    assert found.recommended is not None and "takes 92 %" in found.recommended.reason
    assert found.conservative is not None and "takes 85 %" in found.conservative.reason


def test_memory_that_does_not_depend_on_the_batch_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("8"))
    done = run(f"{tmp_path}/w.py:build", "--memory", "1GiB")
    assert done.returncode == 0
    assert "does the memory depend" in " ".join(done.stdout.split())
    assert "limit given" not in done.stdout


def test_a_size_the_workload_refuses_is_named_with_the_way_around_it(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("batch_size", check="assert batch_size % 8 == 0 and batch_size < 100"))
    with pytest.raises(UsageError, match=r"batch_size=1\. --max and --multiple-of"):
        vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB")
    with pytest.raises(UsageError, match=r"batch_size=2048\."):
        vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB", multiple_of=8)
    found = vramcast.max_batch(f"{tmp_path}/w.py:build", memory="1GiB", multiple_of=8, maximum=99, global_batch=100)
    assert (found.largest_batch, found.micro_batch) == (96, None)
    assert "no multiple of 8 up to 96 divides a batch of 100" in found.notes


def test_in_a_narrow_terminal_numbers_stay_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(from_rows("8"))
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [VRAMCAST, "max-batch", f"{tmp_path}/w.py:build", "--memory", "1GiB", "--max", "4"]
    lines = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100).stdout.splitlines()
    assert any("MiB" in line and "predicted" in line for line in lines)
    assert all(len(line) <= 80 and "…" not in line for line in lines)


def test_names_in_the_way_are_shown_without_escape_codes(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "import torch\n\ndef build(*, batch_size: int = 1):\n    layer = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "    model = torch.nn.Sequential()\n    model.add_module('[/b]\\x1b[31m', layer)\n"
        "    return lambda: model(torch.randn(batch_size, 4096, device='cuda')).sum().backward()\n"
    )
    done = run(f"{tmp_path}/w.py:build", "--memory", "10MiB")
    assert done.returncode == 3
    assert "[/b]" in done.stdout and "\x1b" not in done.stdout
