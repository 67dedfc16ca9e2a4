"""A simulated program that starts nvidia-smi gets an answer for the simulated GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.programs.nvidia_smi import NOT_KNOWN, answer, facts

GPUS = facts("NVIDIA H200", 143_155 << 20, 600 << 20, 2, "9.0")
PROGRAM = """
import subprocess, torch

names = subprocess.check_output(
    "nvidia-smi --query-gpu=name --format=csv,noheader", shell=True, text=True
).split("\\n")
plain = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
assert names[0] == torch.cuda.get_device_name(), names
assert "MiB" in plain
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    model(torch.ones(8, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_fields_are_given_in_the_order_of_the_question() -> None:
    asked = ["--query-gpu=memory.total,name,index", "--format=csv"]
    assert answer(asked, GPUS).splitlines() == [
        "memory.total [MiB], name, index",
        "143155 MiB, NVIDIA H200, 0",
        "143155 MiB, NVIDIA H200, 1",
    ]


def test_titles_and_units_are_left_out_where_that_is_asked_for() -> None:
    asked = ["--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "1"]
    assert answer(asked, GPUS) == f"{143_155 - 600}\n"


def test_what_is_not_known_is_said_in_its_place() -> None:
    asked = ["--query-gpu=fan.speed", "--format=csv,noheader"]
    assert answer(asked, GPUS[:1]) == f"{NOT_KNOWN}\n"


def test_a_gpu_that_is_not_there_is_not_found() -> None:
    assert answer(["--id=7"], GPUS) == "No devices were found\n"


@pytest.mark.parametrize("words", [[], ["-L"], ["topo", "-m"], ["--query-compute-apps=pid"]])
def test_every_form_has_an_answer(words: list[str]) -> None:
    assert answer(words, GPUS).count("NVIDIA H200") == (0 if words and words != ["-L"] else 2)


def test_a_program_reads_it(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    found = vramcast.predict(["python", str(program)], gpu="h200")
    assert found.num_parameters == 72
