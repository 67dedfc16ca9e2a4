"""What a training takes on each GPU: hours, cost, and wrong prices."""

from __future__ import annotations

import subprocess
from pathlib import Path

import in_process
import pytest

import vramcast
from vramcast.errors import UsageError
from vramcast.predicting.training_cost import per_step, read_prices, read_training
from vramcast.records.plan import Plan
from vramcast.records.prediction import PredictionTable

WORKLOAD = """
import torch

def build(*, batch_size: int = 64, width: int = 1024):
    torch.zeros(1, device="cuda", dtype=torch.bfloat16)
    if torch.cuda.get_device_capability() < (8, 0):
        raise RuntimeError("this GPU is too old")
    layer = torch.nn.Linear(width, width, device="cuda")
    data = torch.zeros(batch_size, width, device="cuda")
    return lambda: layer(data).sum().backward()
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(WORKLOAD)
    return f"{tmp_path / 'train.py'}:build"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.vramcast(*arguments)


@pytest.mark.usefixtures("warm_simulations")
def test_every_gpu_has_hours_and_cost_and_the_cheapest_is_first(workload: str) -> None:
    prices = ["--price", "h200=9000", "--price", "rtx-4090=0.5"]
    done = run("predict", workload, "--gpu", "h200,l4,rtx-4090", "--tokens", "6.4M", *prices)
    assert done.returncode == 0, done.stderr
    assert "the cheapest is" in done.stdout and "hours are for 6.4 M samples" in done.stdout
    table = vramcast.predict_many(
        workload,
        gpu="h200,l4,rtx-4090",
        tokens="6.4M",
        price={"h200": 9000, "rtx-4090": 0.5},
    )
    assert [case.gpu for case in table.cases] == ["rtx-4090", "h200", "l4"]
    cheap, _, unpriced = table.cases
    assert cheap.step_seconds and cheap.hours and cheap.cost and cheap.hours_high
    # A model without the knob seq_len counts samples: 64 a step.
    assert cheap.hours == pytest.approx(1e5 * cheap.step_seconds / 3600)
    assert cheap.cost == pytest.approx(0.5 * cheap.hours) and cheap.hours_high > cheap.hours
    assert cheap.samples_per_second == pytest.approx(64 / cheap.step_seconds)
    assert unpriced.hours and unpriced.cost is None
    assert PredictionTable.from_json(table.to_json()) == table
    steps = vramcast.predict_many(workload, gpu="h200", steps=1000).cases[0]
    assert steps.step_seconds and steps.hours == pytest.approx(steps.step_seconds / 3.6)


@pytest.mark.usefixtures("warm_simulations")
def test_a_gpu_that_is_too_small_or_fails_does_not_end_a_plan(workload: str) -> None:
    common = [workload, "width=40000", "--tokens", "1M", "--gpu", "rtx-3060-12gb,t4,h200"]
    done = run("plan", *common, "--price", "h200=3.5")
    assert done.returncode == 0, done.stderr
    assert "it fits on 1 of 3 GPUs" in done.stdout and "too old" in done.stdout
    plan = Plan.from_json(run("plan", *common, "--price", "h200=3.5", "--json").stdout)
    good, small, old = plan.gpus
    assert (good.gpu, small.gpu, old.gpu) == ("h200", "rtx-3060-12gb", "t4")
    assert good.complete and good.total_hours
    assert good.cost == pytest.approx(3.5 * good.total_hours)
    assert not small.complete and not small.error and "too old" in old.error
    assert run("plan", workload, "width=40000", "--gpu", "rtx-3060-12gb").returncode == 3


def test_prices_come_from_a_file_and_what_is_given_replaces_them(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('h200 = 3.5\n"RTX 4090" = 1\n')
    assert read_prices(["h200=2"], file) == {"h200": 2.0, "rtx-4090": 1.0}


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ("h201=3", "unknown GPU 'h201'"),
        ("h200=-1", "the price of h200 is -1.0, not a number from 0"),
        ("h200=nan", "the price of h200 is nan"),
        ("h200=cheap", "the price of h200 is 'cheap'"),
        ("h200", "is not GPU=PRICE"),
    ],
)
def test_a_wrong_price_is_one_message(price: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_training(steps=1, price=[price])
    assert problem in raised.value.message
    assert raised.value.advice


def test_a_file_of_prices_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    for text in ("h200 = -1", "h2o = 1", "h200 =", "", "h200 = true", "[h200]\nprice = 1"):
        file.write_text(text)
        with pytest.raises(UsageError, match="prices.toml"):
            read_prices((), file)
    for given in (["h200=1", "H200=2"],):
        with pytest.raises(UsageError, match="twice"):
            read_prices(given)


def test_the_length_of_a_training_is_said_once_and_with_prices_it_must_be() -> None:
    for given in (
        {"tokens": "1B", "steps": 5},
        {"price": ["h200=1"]},
        {"tokens": "ten"},
        {"steps": 0},
        {"tokens": "1B", "num_gpus": 8},
    ):
        with pytest.raises(UsageError):
            read_training(**given)  # type: ignore[arg-type]
    assert read_training(tokens="1.5B").tokens == 1_500_000_000


def test_a_step_that_accumulates_has_the_samples_of_all_its_passes() -> None:
    assert per_step({"batch_size": 4, "seq_len": 8, "accumulation": 2}) == (8, 64)
    assert per_step({"batch_size": 4}) == (4, 4)
    assert per_step({"batch_size": "4"}) == (None, None)
