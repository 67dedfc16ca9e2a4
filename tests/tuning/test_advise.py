"""`vramcast advise`: which changes apply, what they save, and which come first."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import in_process
import pytest
from rich.console import Console

import vramcast
from vramcast.cli import brief_advice
from vramcast.errors import UsageError
from vramcast.hardware.gpus import find_gpu
from vramcast.predicting.predict import make_request
from vramcast.records.advice import Advice
from vramcast.records.prediction import Prediction
from vramcast.reporting import showing
from vramcast.simulate.many import try_all
from vramcast.tuning.advised_changes import (
    Applicable,
    Change,
    applicable,
)
from vramcast.tuning.line_options import options_of, with_options
from vramcast.tuning.optimisations import catalogue
from vramcast.workload.configuration import Configuration
from vramcast.workload.switches import Switches

MiB = 1 << 20
BY_NAME = {one.name: one for one in catalogue()}
WORKLOAD = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

def train(model, batch_size, amp):
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = model(torch.zeros(batch_size, 512, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step

def flat(*, batch_size: int = 16384, amp: bool = False):
    return train(Block(512).cuda(), batch_size, amp)

def blocks(*, samples: int = 16384, use_half: bool = False):
    return train(nn.Sequential(*[Block(512) for _ in range(4)]).cuda(), samples, use_half)
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(WORKLOAD)
    return str(tmp_path / "train.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast(*arguments)


@pytest.mark.usefixtures("warm_simulations")
def test_what_makes_it_fit_comes_first_with_its_knobs_and_takes_what_it_takes_alone(
    workload: str,
) -> None:
    where = ["--gpu", "rtx-4090", "--memory", "350MiB"]
    done = run("advise", f"{workload}:flat", *where, "--json")
    assert done.returncode == 0, done.stderr
    advice = Advice.from_json(done.stdout)
    assert not advice.fits and all(one.fits for one in advice.suggestions)
    alone = {one.names[0]: one for one in advice.alone}
    assert alone["amp-bf16"].how == ["amp=True"]
    same = vramcast.predict(f"{workload}:flat", gpu="rtx-4090", memory="350MiB", amp=True)
    assert alone["amp-bf16"].peak_reserved_bytes == same.peak_reserved_bytes
    assert alone["amp-bf16"].step_seconds == same.step_seconds
    saved = advice.peak_reserved_bytes - same.peak_reserved_bytes
    assert alone["amp-bf16"].saved_bytes == saved
    half = alone["accumulate-2"]
    assert half.knobs == {"batch_size": 8192} and half.passes == 2
    # What is cheapest does not change the training; there is no block to checkpoint.
    assert not advice.suggestions[0].changes_training and "checkpointing-on" not in alone
    shown = StringIO()
    showing.show(advice, Console(file=shown, width=100))
    assert "makes it fit" in shown.getvalue() and "autocast in bfloat16" in shown.getvalue()


@pytest.mark.usefixtures("warm_simulations")
def test_without_a_knob_a_change_is_made_from_outside_as_the_program_would(workload: str) -> None:
    request = make_request(f"{workload}:blocks", {}, "rtx-4090")
    switches = [{}, {"checkpoint_every": 1}, {"autocast": "bf16"}]
    answers = try_all([{**request, "switches": each} for each in switches], 300)
    plain, checkpointed, autocast = (Prediction.from_dict(answer) for answer in answers)
    own = vramcast.predict(f"{workload}:blocks", gpu="rtx-4090", use_half=True)
    assert autocast.peak_reserved_bytes == own.peak_reserved_bytes
    assert autocast.peak_allocated_bytes == own.peak_allocated_bytes
    # Of three blocks their inputs alone are kept: 32 MiB each, where 128 more were.
    saved = plain.peak_allocated_bytes - checkpointed.peak_allocated_bytes
    assert saved > 0.98 * 3 * 128 * MiB
    assert checkpointed.step_seconds and plain.step_seconds
    assert checkpointed.step_seconds > 1.1 * plain.step_seconds


@pytest.mark.long
@pytest.mark.usefixtures("warm_simulations")
def test_below_a_no_predict_shows_what_makes_it_fit_and_the_command_for_more(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = [f"{workload}:flat", "amp=true", "--gpu", "rtx-4090", "--memory", "250MiB"]
    short = run("predict", *where)
    assert short.returncode == 3 and "vramcast advise" in short.stderr
    monkeypatch.setattr(brief_advice, "MOST_SECONDS", 300.0)
    done = run("predict", *where)
    assert done.returncode == 3
    assert "accumulate-4 makes it fit" in done.stdout and "amp-bf16" not in done.stdout
    # a long name is broken where the line ends
    assert f"vramcast advise {workload}:flat amp=true".replace(" ", "") in "".join(
        done.stdout.split()
    )


def offers(in_force: dict[str, object], line: Sequence[str] = ()) -> Applicable:
    def bind(changes: list[dict[str, object]]) -> list[Mapping[str, object] | str]:
        return [{**in_force, **change} for change in changes]

    return applicable(in_force, bind, line, find_gpu("rtx-4090"), "")


def test_what_is_on_is_not_advised_and_without_a_knob_there_is_code() -> None:
    on = offers({"batch_size": 8, "checkpointing": True, "precision": "amp-bf16", "lora": 8})
    names = {name for change in on.changes for name in change.names}
    names |= {one.name for one in on.estimated}
    assert not names & {"checkpointing-on", "checkpointing-every-2nd", "amp-bf16", "lora", "qlora"}
    assert "already" in on.refused["checkpointing-on"]
    by_name = {change.names[0]: change for change in offers({"batch_size": 6}).changes}
    assert "checkpoint(block" in by_name["checkpointing-on"].how()[0]
    # six samples are two halves, and no quarters
    assert by_name["accumulate-2"].configuration.knobs == {"batch_size": 3}
    assert "accumulate-4" not in by_name
    old = applicable({}, lambda changes: [{} for _ in changes], (), find_gpu("t4"), "")
    assert "compute capability 8.0" in old.refused["amp-bf16"]


def test_a_launch_line_of_a_trainer_takes_its_options() -> None:
    line = ("python", "run.py", "--per_device_train_batch_size", "8", "--optim=adafactor")
    by_name = {change.names[0]: change for change in offers({}, line).changes}
    assert by_name["checkpointing-on"].line(line)[-1] == "--gradient_checkpointing=true"
    assert by_name["accumulate-4"].line(line)[-2:] == [
        "--per_device_train_batch_size=2",
        "--gradient_accumulation_steps=4",
    ]
    assert "optimizer-adafactor" not in by_name
    plain = {change.names[0]: change for change in offers({}, ("python", "run.py")).changes}
    assert plain["checkpointing-on"].flags == () and "accumulate-2" not in plain


def test_advice_without_memory_or_of_several_gpus_is_wrong_usage(workload: str) -> None:
    with pytest.raises(UsageError, match="depends on the available memory"):
        vramcast.advise(f"{workload}:flat")
    with pytest.raises(UsageError, match="one GPU"):
        vramcast.advise(["torchrun", "--nproc-per-node", "2", workload], gpu="h200")


def change(name: str, **options: object) -> Change:
    return Change((BY_NAME[name],), **options)  # type: ignore[arg-type]


def test_changes_of_the_same_thing_exclude_each_other() -> None:
    every = change(
        "checkpointing-on", configuration=Configuration(switches=Switches(checkpoint_every=1))
    )
    second = change(
        "checkpointing-every-2nd", configuration=Configuration(knobs={"checkpointing": True})
    )
    fused, foreach = change("optimizer-fused"), change("optimizer-foreach-off")
    assert every.with_(second) is None and fused.with_(foreach) is None
    both = every.with_(fused)
    assert both is not None and both.names == ("checkpointing-on", "optimizer-fused")
    assert change("accumulate-2", passes=2).with_(change("accumulate-4", passes=4)) is None
    assert change("lora").level > change("bf16").level > every.level


def test_options_of_a_launch_line_are_read_and_replaced() -> None:
    words = ["python", "run.py", "--bf16", "--optim", "adamw_torch", "--lr=1", "--steps", "5"]
    assert options_of(words) == {"bf16": "true", "optim": "adamw_torch", "lr": "1", "steps": "5"}
    changed = with_options(words, {"optim": "adafactor", "gradient_checkpointing": "true"})
    assert changed == [
        *("python", "run.py", "--bf16", "--lr=1", "--steps", "5"),
        *("--optim=adafactor", "--gradient_checkpointing=true"),
    ]


def test_every_advised_change_says_how_it_is_made() -> None:
    advised = [one for one in catalogue() if one.advised]
    assert {"lora", "qlora", "fsdp-8", "accumulate-4", "liger", "set-to-none"} <= {
        one.name for one in advised
    }
    for one in advised:
        assert one.code or one.name == "fused-recurrence", one.name
        assert set(one.saves) <= {"parameters", "gradients", "optimizer_state"}, one.name


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=64)
parser.add_argument("--output_dir")
parser.add_argument("--grad-checkpointing", action="store_true")
parser.add_argument("--mixed_precision", choices=["no", "bf16"])
"""


def test_a_script_takes_the_options_that_it_declares(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    line = ("python", str(script), "--output_dir", "out")
    by_name = {change.names[0]: change for change in offers({}, line).changes}
    assert by_name["checkpointing-on"].line(line)[-1] == "--grad-checkpointing"
    assert by_name["amp-bf16"].line(line)[-1] == "--mixed_precision=bf16"
    # it has no option for accumulation: half the batch is another training
    assert "accumulate-2" not in by_name
    assert by_name["half-batch"].line(line)[-1] == "--batch-size=32"
    on = {change.names[0] for change in offers({}, (*line, "--grad-checkpointing", "-b8")).changes}
    assert "checkpointing-on" not in on
    script.write_text(f'{SCRIPT}parser.add_argument("--grad-accum-steps", type=int)')
    named = (*line, "--grad-accum-steps", "2")
    by_name = {change.names[0]: change for change in offers({}, named).changes}
    assert by_name["accumulate-2"].line(named)[-2:] == ["--batch-size=32", "--grad-accum-steps=4"]


def test_torchtune_and_litgpt_take_their_own_options() -> None:
    line = ("tune", "run", "full_finetune_single_device", "--config", "x", "batch_size=4")
    by_name = {change.names[0]: change for change in offers({}, line).changes}
    assert by_name["optimizer-in-backward"].line(line)[-1] == "optimizer_in_bwd=True"
    assert by_name["accumulate-2"].line(line)[-2:] == [
        "batch_size=2",
        "gradient_accumulation_steps=2",
    ]
    line = ("litgpt", "finetune_lora", "x", "--train.micro_batch_size", "4")
    by_name = {change.names[0]: change for change in offers({}, line).changes}
    assert by_name["accumulate-4"].line(line)[-1] == "--train.micro_batch_size=1"


def test_a_smaller_batch_of_a_line_is_tried_through_a_placeholder_or_the_line_is_shown() -> None:
    line = ("python", "run.py", "--size={batch_size}")
    by_name = {change.names[0]: change for change in offers({"batch_size": 8}, line).changes}
    assert by_name["half-batch"].configuration.knobs == {"batch_size": 4}
    # as many samples take two steps
    assert (by_name["half-batch"].num_steps, by_name["expandable-segments"].num_steps) == (2, 1)
    assert "accumulate-2" not in by_name
    assert "{batch_size}" in offers({}, ("python", "run.py")).refused["half-batch"]
