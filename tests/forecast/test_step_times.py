"""How host and GPU wait for each other, and how wide a range is."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_works import FP32, H200, addition, product

import vramcast
from vramcast.forecast.timing.kernels import kernel_time
from vramcast.forecast.timing.pipeline import forecast_step, host_costs, period_seconds
from vramcast.forecast.timing.rates import shipped
from vramcast.hardware.calibration.host import host_file
from vramcast.records.calibration import HostSpeed
from vramcast.records.store import write_json
from vramcast.tracing.work import (
    BACKWARD,
    FORWARD,
    PLAIN,
    OperatorWork,
    Works,
)

pytestmark = pytest.mark.usefixtures("warm_simulations")


def test_large_kernels_hide_the_host_and_small_ones_wait_for_it() -> None:
    large, small = [product(8192, 8192, 8192)] * 50, [addition(1000.0)] * 50
    busy, idle = forecast_step(large, H200), forecast_step(small, H200)
    assert (
        busy.seconds == pytest.approx(busy.device_seconds, rel=0.02) and busy.bound_by == "compute"
    )
    assert idle.seconds == pytest.approx(idle.host_seconds, rel=0.1) and idle.bound_by == "launch"
    assert forecast_step([addition(1e9)] * 50, H200).bound_by == "bandwidth"


def test_a_step_takes_at_least_what_each_side_needs() -> None:
    works = [product(1024, 1024, 1024), addition(1e6), addition(1e8)._replace(phase=BACKWARD)] * 20
    step = forecast_step(works, H200)
    assert step.seconds >= max(step.device_seconds, step.host_seconds) * 0.999


@pytest.mark.parametrize(
    ("operator", "access"), [("aten::_local_scalar_dense", PLAIN), ("vramcast::synchronize", 0)]
)
def test_reading_a_value_back_makes_the_host_wait_for_the_gpu(operator: str, access: int) -> None:
    works = [addition(1e9)] * 40
    item = OperatorWork(operator, FP32, 0.0, 4.0, (0, 0, 0, 0), FORWARD, access)
    host_heavy = [addition(10.0)] * 400
    rates = shipped()

    def period(step: list[OperatorWork]) -> float:
        works = Works.of(step)
        seconds = works.each(lambda w: kernel_time(w, H200, rates).seconds)
        return period_seconds(works, seconds, host_costs(works, 0, rates), rates)

    assert period([*works, item, *host_heavy]) > 1.2 * period([*works, *host_heavy])


def test_a_slower_host_only_matters_where_the_gpu_waits_for_it() -> None:
    slow = replace(shipped(), host={name: 3 * value for name, value in shipped().host.items()})
    large, small = [product(8192, 8192, 8192)] * 50, [addition(1000.0)] * 50
    assert forecast_step(large, H200, rates=slow).seconds == pytest.approx(
        forecast_step(large, H200).seconds, rel=0.05
    )
    assert forecast_step(small, H200, rates=slow).seconds > 2 * forecast_step(small, H200).seconds


def width(works: list[OperatorWork]) -> float:
    step = forecast_step(works, H200)
    assert step.seconds_low is not None and step.seconds_high is not None
    assert step.seconds_low <= step.seconds <= step.seconds_high
    return step.seconds_high / step.seconds_low


def test_a_range_is_narrow_where_well_known_kernels_keep_the_gpu_busy() -> None:
    products, small = [product(8192, 8192, 8192)] * 50, [addition(1000.0)] * 50
    unknown = [addition(1e9)._replace(operator="other::kernel")] * 50
    assert 1.0 < width(products) <= 1.3
    assert width(products) < width(small) <= 2.5
    assert width(unknown) > 2 * width(products)
    assert width([*products, *small]) <= 1.3, "small kernels between large ones change little"
    alike = [addition(1e9)._replace(operator="aten::nobody_measured_it")] * 50
    assert width(alike) == pytest.approx(1.3, abs=0.01), "the widest of torch's own"


def test_kernels_that_torch_compile_writes_are_off_together() -> None:
    """One rate is assumed for all of them: their errors do not cancel. Steps that were measured
    bound the range."""

    def width(operator: str) -> float:
        works = [addition(1e9)._replace(operator=f"{operator}{n}") for n in range(400)]
        found = forecast_step(works, H200)
        assert found.seconds_high and found.seconds_low
        return found.seconds_high / found.seconds_low

    assert width("aten::unknown_") < 1.28 < width("inductor::triton_") <= 1.301


def test_the_gpu_is_busy_only_if_a_slow_host_would_not_change_that() -> None:
    kernel = addition(1.3e8)  # about as long as the host takes to launch it
    forecast = forecast_step([kernel] * 100, H200)
    assert forecast.bound_by == "launch"
    assert forecast.seconds_high is not None
    assert forecast.seconds_high > 1.1 * forecast.device_seconds


def test_functions_that_the_program_calls_take_time_on_the_host() -> None:
    works = [addition(1000.0)] * 50
    plain, busy_python = forecast_step(works, H200), forecast_step(works, H200, 1000)
    assert busy_python.host_seconds > plain.host_seconds + 3e-4
    assert busy_python.seconds > plain.seconds


def test_a_calibrated_host_changes_the_times_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = [product(8192, 8192, 8192)] * 50, [addition(1000.0)] * 50
    before = [forecast_step(works, H200) for works in (large, small)]
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path))
    slow = HostSpeed(
        machine="a slow machine",
        python_version="3.12.3",
        torch_version="2.13.0",
        step_seconds=2 * (shipped().host_step_seconds or 0),
    )
    write_json(host_file(), slow.to_dict())
    after = [forecast_step(works, H200) for works in (large, small)]
    assert after[0].seconds == pytest.approx(before[0].seconds, rel=0.02)
    assert after[1].host_seconds == pytest.approx(2 * before[1].host_seconds)
    assert "H200" in before[1].host and "a slow machine" in after[1].host


def test_achieved_fraction_is_flops_over_time_and_peak() -> None:
    step = forecast_step([product(8192, 8192, 8192)] * 10, H200)
    assert step.achieved_fraction == pytest.approx(step.flops / step.seconds / 989e12)
    assert math.isfinite(step.achieved_fraction)


def test_a_prediction_tells_the_work_of_a_step_exactly() -> None:
    """GPT: 6 x parameters x tokens, and attention on top: the embedding is looked up, not
    multiplied."""
    p = vramcast.predict("gpt2-124m", gpu="h200", batch_size=2, seq_len=256, depth=2)
    assert p.step is not None and p.step_seconds == p.step.seconds
    assert p.step_seconds_low is not None and p.step_seconds_high is not None
    assert p.step_seconds_low < p.step_seconds < p.step_seconds_high
    tokens, width, vocabulary, depth = 2 * 256, 768, 50304, 2
    weights = depth * 12 * width * width
    least = 6.0 * tokens * (weights + 50257 * width)
    assert least <= p.step.flops <= 1.1 * 6.0 * tokens * (weights + vocabulary * width)
    assert p.tokens_per_second == pytest.approx(tokens / p.step_seconds)


def test_without_a_gpu_there_is_no_time_and_a_reason() -> None:
    p = vramcast.predict("gpt2-124m", memory="8GiB", batch_size=1, seq_len=64, depth=1)
    assert p.step is None and p.step_seconds is None and "GPU" in p.step_seconds_reason


def test_a_faster_gpu_takes_less_time() -> None:
    knobs = {"batch_size": 8, "seq_len": 512, "depth": 2}
    times = [
        vramcast.predict("gpt2-124m", gpu=gpu, **knobs).step_seconds for gpu in ("h200", "rtx-3090")
    ]
    assert all(times) and times == sorted(times)
