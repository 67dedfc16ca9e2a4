"""`vramcast plan` as people use it: what it plans fits, and what it writes can be read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import in_process
import pytest
import yaml
from waiting import PATIENCE_SECONDS, comes_true, let_ctrl_c_through

import vramcast
from vramcast.errors import UsageError

pytestmark = pytest.mark.usefixtures("warm_simulations")
VRAMCAST = str(Path(sys.executable).with_name("vramcast"))
GPT = "vramcast_zoo.suites.models:gpt"
TINY = {"vocabulary": 1000, "width": 128, "heads": 4, "depth": 2}
TINY_TEXT = [f"{key}={value}" for key, value in TINY.items()]


def run(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast("plan", *arguments, columns=columns)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("plan") / "new"
    options = [
        "--seq-lens",
        "32,64,256",
        "--gpu",
        "rtx-4090,h200",
        "--memory",
        "1GiB",
        "--tokens",
        "1e7",
        "--out",
        str(folder),
        "--json",
    ]
    done = run(GPT, *TINY_TEXT, *options)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, folder


def test_every_batch_of_a_plan_fits_without_emptying_the_cache_and_the_next_does_not(
    planned: tuple[dict[str, Any], Path],
) -> None:
    answer, _ = planned
    for gpu in answer["gpus"]:
        assert gpu["limit_bytes"] == int(0.95 * 2**30)
        for stage in gpu["stages"]:
            sizes = [stage["batch_size"], stage["batch_size"] + 1]
            curve = vramcast.predict_batch_sizes(
                GPT, sizes, gpu=gpu["gpu"], seq_len=stage["seq_len"], **TINY
            )
            assert (
                curve.points[0].peak_reserved_bytes
                == stage["peak_reserved_bytes"]
                <= gpu["limit_bytes"]
                < curve.points[1].peak_reserved_bytes
            )
            assert stage["why"] and stage["binds"] in ("memory", "compute", "bandwidth", "launch")


FRAGMENTING = """
import torch

def build(*, batch_size: int = 1, seq_len: int = 8):
    layer = torch.nn.Linear(1, 1, device="cuda")

    def step():
        # Sizes that grow by different amounts leave gaps that larger tensors cannot use.
        kept = []
        for number in range(12):
            size = (batch_size * (7 + 13 * number % 11) + 40 * number) * seq_len * 1000
            short = torch.empty(size, device="cuda")
            kept.append(torch.empty(size // 3 + batch_size * 70_000, device="cuda"))
            del short
        layer(torch.ones(1, 1, device="cuda")).sum().backward()

    return step
"""


@pytest.mark.parametrize(
    ("workload", "memory", "safety"),
    [
        ("gpt", "1GiB", 0.0),
        pytest.param("gpt", "1.5GiB", 0.1, marks=pytest.mark.long),
        pytest.param("fragmenting", "4GiB", 0.0, marks=pytest.mark.long),
        ("fragmenting", "2.5GiB", 0.05),
    ],
)
def test_max_batch_and_plan_find_the_same_largest_batch(
    workload: str, memory: str, safety: float, tmp_path: Path
) -> None:
    """They were once two searches, and could disagree."""
    (tmp_path / "w.py").write_text(FRAGMENTING)
    name, knobs = (GPT, TINY) if workload == "gpt" else (f"{tmp_path}/w.py:build", {})
    lengths = [32, 64, 192]
    stages = vramcast.plan(name, seq_lens=lengths, memory=memory, safety=safety, **knobs).gpus[0]
    for seq_len, stage in zip(lengths, stages.stages, strict=True):
        found = vramcast.max_batch(name, memory=memory, safety=safety, seq_len=seq_len, **knobs)
        assert (found.largest_batch, found.first_failing_batch) == (
            stage.largest_batch,
            stage.first_failing_batch,
        )


def test_the_plan_and_a_curriculum_for_each_gpu_are_written(
    planned: tuple[dict[str, Any], Path],
) -> None:
    answer, folder = planned
    assert sorted(path.name for path in folder.iterdir()) == [
        "curriculum-h200.yaml",
        "curriculum-rtx-4090.yaml",
        "plan.json",
    ]
    assert vramcast.Plan.from_json((folder / "plan.json").read_text()).to_dict() == answer
    read = yaml.safe_load((folder / "curriculum-h200.yaml").read_text())
    stages = answer["gpus"][1]["stages"]
    assert [s["batch_size"] for s in read["curriculum_stages"]] == [s["batch_size"] for s in stages]
    assert [s["start_step"] for s in read["curriculum_stages"]] == [s["start_step"] for s in stages]
    assert sum(s["steps"] * s["tokens_per_step"] for s in read["curriculum_stages"]) >= 10**7


def test_a_folder_with_a_plan_is_not_written_over(planned: tuple[dict[str, Any], Path]) -> None:
    done = run(GPT, *TINY_TEXT, "--seq-lens", "32", "--gpu", "h200", "--out", str(planned[1]))
    assert done.returncode == 2 and "--force" in done.stderr


def test_a_step_too_large_for_the_memory_is_accumulated_in_equal_parts_that_fit() -> None:
    plan = vramcast.plan(
        GPT, seq_lens=[32, 256], memory="256MiB", tokens_per_step=65536, safety=0.0, **TINY
    )
    for stage in plan.gpus[0].stages:
        assert (
            stage.batch_size is not None
            and stage.accumulation_steps is not None
            and stage.peak_reserved_bytes is not None
        )
        assert stage.accumulation_steps > 1
        assert (
            stage.batch_size * stage.accumulation_steps * stage.seq_len
            == 65536
            == stage.tokens_per_step
        )
        alone = vramcast.predict(GPT, batch_size=stage.batch_size, seq_len=stage.seq_len, **TINY)
        assert alone.peak_allocated_bytes < (stage.peak_allocated_bytes or 0), (
            "gradients are there during the forward pass too"
        )
        assert stage.peak_reserved_bytes <= 256 * 2**20


def test_a_step_that_fits_at_once_is_not_accumulated() -> None:
    stage = (
        vramcast.plan(GPT, seq_lens="64", gpu="h200", tokens_per_step=4096, **TINY)
        .gpus[0]
        .stages[0]
    )
    assert (stage.batch_size, stage.accumulation_steps) == (64, 1)
    assert "at once" in stage.why


def test_in_80_columns_a_stage_is_one_line() -> None:
    done = run(GPT, *TINY_TEXT, "--seq-lens", "64,256", "--gpu", "h200", "--memory", "1GiB")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and all(len(line) <= 80 and "…" not in line for line in lines)
    assert any(line.split()[:1] == ["256"] and "MiB" in line and "%" in line for line in lines)


def test_an_interrupted_plan_leaves_no_process_behind() -> None:
    process = subprocess.Popen(
        [VRAMCAST, "plan", GPT, "--seq-lens", "64,128,256,512", "--gpu", "h200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=let_ctrl_c_through,
    )
    workers: list[str] = []

    def has_workers() -> bool:
        workers[:] = children(process.pid)
        return bool(workers) or process.poll() is not None

    assert comes_true(has_workers)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert workers
    assert comes_true(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def children(pid: int) -> list[str]:
    """Of all its threads."""
    return [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


# ---------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--gpu", "h200", "--seq-lens", ""], ["No sequence lengths", "--seq-lens 128"]),
        (["--gpu", "h200", "--tokens-per-step", "100"], ["sequences of length"]),
        (["--gpu", "h200", "--seq-lens", "64,32"], ["32 comes after 64", "--seq-lens 32,64"]),
        (["--gpu", "h200", "--seq-lens", "32,32"], ["32 is given twice"]),
        (["--gpu", "h200", "--seq-lens", "32,x"], ["'x'"]),
        (["--gpu", "h200", "--seq-lens", "0,8"], ["from 1 to 16777216, not '0'"]),
        (["--gpu", "rtx-409", "--seq-lens", "32"], ["'rtx-409'", "Did you mean rtx-4090"]),
        (["--gpu", "h200,,a40", "--seq-lens", "32"], ["empty name"]),
        (["--gpu", "h200,H200", "--seq-lens", "32"], ["h200 is given twice"]),
        (["--seq-lens", "32"], ["--gpu", "--memory"]),
        (
            ["--gpu", "rtx-4090", "--memory", "80GiB", "--seq-lens", "32"],
            ["--memory 80.00 GiB is more than rtx-4090 has"],
        ),
        (["--memory", "lots", "--seq-lens", "32"], ["lots"]),
        (
            ["--gpu", "h200", "--seq-lens", "32,48", "--tokens-per-step", "100"],
            ["length 32", "for example 96"],
        ),
        (["--gpu", "h200", "--seq-lens", "32", "--tokens-per-step", "0"], ["--tokens-per-step"]),
        (["--gpu", "h200", "--seq-lens", "32", "--tokens", "none"], ["--tokens", "none"]),
        (["--gpu", "h200", "--seq-lens", "32", "--safety", "1.5"], ["--safety", "1.5"]),
        (["--gpu", "h200", "--seq-lens", "32", "--timeout", "0"], ["--timeout"]),
        (["--gpu", "h200", "--seq-lens", "32", "seq_len=8"], ["seq_len was given"]),
        (["--gpu", "h200", "--seq-lens", "32", "batch_size=8"], ["batch_size was given"]),
        (["--gpu", "h200", "--seq-lens", "32", "no_knob=8"], ["no_knob"]),
    ],
)
def test_a_wrong_request_is_answered_with_the_value_and_exit_code_2(
    options: list[str], parts: list[str]
) -> None:
    done = run(GPT, *options)
    assert done.returncode == 2
    assert all(part in done.stderr for part in parts), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_a_length_the_model_refuses_is_named() -> None:
    done = run("gpt2-124m", "depth=1", "--seq-lens", "512,2048", "--gpu", "h200")
    assert done.returncode == 2 and done.stdout == ""
    assert (
        "2048 tokens is longer than the 1024 positions" in done.stderr
        and "This was seq_len=2048" in done.stderr
    )


def test_memory_smaller_than_the_parameters_is_said_with_what_is_missing_and_what_would_help() -> (
    None
):
    done = run("yxanul-197m", "--seq-lens", "64,128", "--memory", "200MiB", "--safety", "0")
    assert done.returncode == 2 and done.stdout == ""
    assert (
        "374.6 MiB" in done.stderr
        and "174.6 MiB are missing" in done.stderr
        and "larger --memory" in done.stderr
    )


def test_where_one_sample_does_not_fit_the_stage_is_marked_and_the_largest_tensors_are_shown(
    tmp_path: Path,
) -> None:
    request = [
        "gpt2-124m",
        "depth=1",
        "--seq-lens",
        "64,1024",
        "--memory",
        "1.2GiB",
        "--safety",
        "0",
        "--out",
        str(tmp_path),
    ]
    done = run(*request)
    assert done.returncode == 3
    assert (
        "not even one sample fits at length 1024" in " ".join(done.stdout.replace("│", " ").split())
        and "Largest in memory at length 1024" in done.stdout
    )
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], (
        "there is no curriculum without one of its lengths"
    )
    gpu = json.loads((tmp_path / "plan.json").read_text())["gpus"][0]
    assert [stage["fits"] for stage in gpu["stages"]] == [True, False]
    assert len(gpu["stages"][1]["largest_tensors"]) == 3 and gpu["stages"][1]["missing_bytes"] > 0
    assert gpu["total_steps"] is None


@pytest.mark.parametrize(("knob", "kept"), [("seq_len", "batch_size"), ("batch_size", "seq_len")])
def test_a_workload_without_one_of_the_two_knobs_is_refused(
    knob: str, kept: str, tmp_path: Path
) -> None:
    (tmp_path / "w.py").write_text(f"def build(*, {kept}: int = 1):\n    return lambda: None\n")
    with pytest.raises(UsageError, match=f"has no knob {knob}"):
        vramcast.plan(f"{tmp_path}/w.py:build", seq_lens=[8], gpu="h200")


def test_memory_that_does_not_depend_on_the_batch_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "import torch\n\ndef build(*, batch_size: int = 1, seq_len: int = 1):\n"
        "    layer = torch.nn.Linear(64, 64, device='cuda')\n"
        "    return lambda: layer(torch.randn(8, 64, device='cuda')).sum().backward()\n"
    )
    plan = vramcast.plan(f"{tmp_path}/w.py:build", seq_lens=[8], memory="1GiB")
    assert "does the memory depend on batch_size" in plan.gpus[0].stages[0].why


VISION = """
import torch

def build(*, batch_size: int = 8):
    net = torch.nn.Linear(3 * 64 * 64, 10, device="cuda")
    images = torch.zeros(batch_size, 3 * 64 * 64, device="cuda")
    return lambda: net(images).sum().backward()
"""


def test_a_model_without_sequences_is_planned_in_samples(tmp_path: Path) -> None:
    (tmp_path / "vision.py").write_text(VISION)
    memory = ["--gpu", "t4,h200", "--memory", "100MiB", "--tokens", "1e6"]
    done = run(f"{tmp_path / 'vision.py'}:build", *memory, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["has_lengths"], found["seq_lens"]) == (False, [1])
    (stage,) = found["gpus"][0]["stages"]
    assert stage["tokens_per_step"] == stage["batch_size"] > 1
    shown = run(f"{tmp_path / 'vision.py'}:build", *memory).stdout
    assert "samples" in shown and "length" not in shown.partition("note:")[0]


def test_without_lengths_a_plan_is_for_the_length_that_the_workload_has() -> None:
    found = vramcast.plan(GPT, gpu="h200", memory="1GiB", seq_len=64, **TINY)
    assert (found.seq_lens, found.has_lengths) == ([64], True)
    with_length = vramcast.plan(GPT, gpu="h200", memory="1GiB", seq_lens=[64], **TINY)
    assert found.gpus[0].stages == with_length.gpus[0].stages
