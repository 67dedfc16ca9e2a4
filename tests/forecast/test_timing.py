"""Step times: what a kernel takes, how host and GPU wait for each other, and how near that is to a
real H200."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vramcast
from vramcast.forecast.timing.kernels import ATTENTION_RATES, REDUCTION_INNER, kernel_time
from vramcast.forecast.timing.pipeline import forecast_step, host_costs, period_seconds
from vramcast.forecast.timing.rates import peak_flops, shipped
from vramcast.forecast.timing.walks import WALK
from vramcast.hardware.calibration.host import host_file
from vramcast.hardware.gpus import GPUS, find_gpu
from vramcast.records.calibration import HostSpeed
from vramcast.records.prediction import StepForecast
from vramcast.records.store import write_json
from vramcast.tracing.work import (
    ACCESS_NAMES,
    BACKWARD,
    CONVERTING,
    EVALUATION,
    FORWARD,
    NO_KERNEL,
    PLAIN,
    STRIDED,
    TF32,
    OperatorWork,
    Works,
)

pytestmark = pytest.mark.usefixtures("warm_simulations")
H200 = find_gpu("h200")
BF16, FP32 = 15, 6


def product(
    rows: int, columns: int, inner: int, *, dtype: int = BF16, access: int = PLAIN
) -> OperatorWork:
    num_bytes = 2.0 * (rows * inner + inner * columns + rows * columns)
    return OperatorWork(
        "aten::mm",
        dtype,
        2.0 * rows * columns * inner,
        num_bytes,
        (1, rows, columns, inner),
        FORWARD,
        access,
    )


def addition(num_bytes: float, access: int = PLAIN) -> OperatorWork:
    return OperatorWork("aten::add", BF16, 0.0, num_bytes, (0, 0, 0, 0), FORWARD, access)


def seconds(work: OperatorWork, gpu: str = "h200") -> float:
    return kernel_time(work, find_gpu(gpu), shipped()).seconds


def test_a_large_product_runs_at_most_of_the_peak_and_never_above_it() -> None:
    work = product(16384, 16384, 16384)
    rate = work.flops / seconds(work)
    assert 0.6 * peak_flops(H200, "bf16") < rate < peak_flops(H200, "bf16")


def test_without_tensor_cores_a_product_takes_many_times_as_long() -> None:
    assert seconds(product(8192, 8192, 8192, dtype=FP32)) > 8 * seconds(product(8192, 8192, 8192))
    assert (
        seconds(product(8192, 8192, 8192, dtype=TF32))
        < seconds(product(8192, 8192, 8192, dtype=FP32)) / 4
    )


def test_rows_that_are_not_aligned_cost_a_slower_kernel() -> None:
    assert seconds(product(8192, 768, 30522, access=STRIDED)) > 2 * seconds(
        product(8192, 768, 30528)
    )


RECORDED = Path(__file__).parents[2] / "benchmarks" / "step_time" / "recorded" / "unaligned.jsonl"


@pytest.mark.parametrize("words", [30522, 50257, 50260])
def test_an_output_layer_of_unaligned_width_takes_what_an_h200_took(words: int) -> None:
    """Inductor pads these where that is faster; odd widths are slowest."""
    for row in map(json.loads, RECORDED.read_text().splitlines()):
        if (row["words"], row["tokens"], row["kind"]) == (words, 8192, "of_hidden"):
            found = kernel_time(
                product(8192, row["width"], words, access=STRIDED), H200, shipped()
            ).seconds
            assert found == pytest.approx(row["product_seconds"], rel=0.25)


def test_an_addition_is_as_fast_as_memory_allows_and_converting_is_slower() -> None:
    num_bytes = 1e9
    assert 0.7 < num_bytes / seconds(addition(num_bytes)) / H200.bandwidth_bytes_per_second < 1.0
    assert seconds(addition(num_bytes, CONVERTING)) > 1.2 * seconds(addition(num_bytes))


def test_a_view_takes_no_time_on_the_gpu() -> None:
    assert (
        seconds(OperatorWork("aten::view", -1, 0.0, 0.0, (0, 0, 0, 0), FORWARD, NO_KERNEL)) == 0.0
    )


def test_an_operator_nobody_measured_is_as_fast_as_others_that_go_through_memory_alike() -> None:
    strange = addition(1e9)._replace(operator="aten::strange")
    assert seconds(strange) == pytest.approx(seconds(addition(1e9)), rel=0.6)
    by_hand = addition(1e9)._replace(operator="mine::strange")
    assert seconds(by_hand) > seconds(strange), "a kernel of one's own does more than copy"


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_more_work_never_takes_less_time(rows: int, columns: int, inner: int) -> None:
    assert seconds(product(2 * rows, columns, inner)) >= seconds(product(rows, columns, inner))


@pytest.mark.parametrize("gpu", [gpu.name for gpu in GPUS])
def test_every_gpu_has_a_time_for_every_precision(gpu: str) -> None:
    for dtype in (5, FP32, BF16, TF32, 24, -1):
        assert 0 < seconds(product(1024, 1024, 1024, dtype=dtype), gpu) < 1


def rows_of_table(count: int, row_bytes: int, operator: str = "aten::index_select") -> OperatorWork:
    moved = 2.0 * count * row_bytes
    return OperatorWork(operator, 6, 0.0, moved, (0, 0, 0, count), 0, STRIDED)


def test_many_short_rows_take_longer_than_few_long_ones_with_the_same_bytes() -> None:
    assert seconds(rows_of_table(500_000, 64)) > 5 * seconds(rows_of_table(10_000, 3200))


def test_few_channels_leave_most_of_the_gpu_idle() -> None:
    few, many, odd = (
        OperatorWork("aten::native_batch_norm", 15, 0.0, 1e8, (0, *sizes), 0, PLAIN)
        for sizes in ((64, 24_414, 16), (64, 763, 512), (24_038, 65, 16))
    )
    assert seconds(few) > 3 * seconds(many)
    # 65 positions have rows of 128 threads
    assert seconds(odd) > 1.5 * seconds(few)


def test_a_product_with_a_vector_is_not_cut_into_tiles() -> None:
    batch = OperatorWork("aten::bmm", 6, 8.4e6, 3.4e7, (32_768, 1, 1, 128), 0, PLAIN)
    assert seconds(batch) < 1e-4


def test_gradients_that_are_added_to_one_pixel_wait_for_each_other() -> None:
    """As deeplabv3 on an H200: 26.3 ms for 48 x 21 pictures of 24 x 24 that become 384 x 384."""
    large, small = 48 * 21 * 384**2, 48 * 21 * 24**2
    name, moved = "aten::upsample_bilinear2d_backward", 4.0 * (large + small)
    work = OperatorWork(name, FP32, 0.0, moved, (0, 0, 0, large * large // small), 0, PLAIN)
    assert 20e-3 < seconds(work) < 32e-3
    assert seconds(work._replace(sizes=(0, 0, 0, 4 * large))) < 2e-3


@pytest.mark.parametrize(
    ("rows", "places", "width", "milliseconds"),
    [(524_288, 500_000, 64, 0.825), (24_576, 49_152, 1024, 0.476), (40_960, 32_000, 768, 0.528)],
)
def test_gradients_of_a_table_take_what_an_h200_took(
    rows: int, places: int, width: int, milliseconds: float
) -> None:
    """Of bags of names, and of two language models: the rates were not made from them."""
    sizes, moved = (0, rows, places, width), 4.0 * width * (rows + places)
    work = OperatorWork("aten::embedding_dense_backward", 6, 0.0, moved, sizes, 1, PLAIN)
    assert seconds(work) == pytest.approx(1e-3 * milliseconds, rel=0.15)


def test_many_small_products_start_while_others_run() -> None:
    """Of windows of 49 pixels, as swin_b has them: 55.7 us on an H200."""
    moved = 2.0 * 6144 * (49 * 49 + 2 * 49 * 32)
    sizes = (6144, 49, 32, 49)
    work = OperatorWork("aten::bmm", BF16, 2.0 * math.prod(sizes), moved, sizes, 0, STRIDED)
    assert 45e-6 < seconds(work) < 67e-6


def test_a_score_of_attention_costs_more_than_its_products() -> None:
    """Wide heads use the tensor cores better: on an H200, 469 and 615 TFLOP/s backward."""
    name = "aten::_scaled_dot_product_cudnn_attention_backward"
    narrow, wide = (
        OperatorWork(name, BF16, 10.0 * math.prod(sizes), 1e8, sizes, BACKWARD, PLAIN)
        for sizes in ((16, 8192, 8192, 64), (16, 8192, 8192, 128))
    )
    assert 1.3 < seconds(wide) / seconds(narrow) < 1.8


def test_the_table_is_complete() -> None:
    rates = shipped()
    assert set(ACCESS_NAMES[1:]) <= set(rates.kernels)
    assert all(min(values) > 0 for values in rates.kernels.values())
    others = [v for n, v in rates.kernels.items() if n not in (WALK, REDUCTION_INNER)]
    lengths = {2, 3, 4, 6}  # 6: of reductions of neighbours
    assert {len(values) for values in others} == lengths and len(rates.kernels[WALK]) == 7
    assert {kind: len(values) for kind, values in rates.products.items()} == {
        **dict.fromkeys(("tensor", "tensor unaligned", "tensor even", "fp32"), 5),
        "vector": 3,
    }
    lengths = (3, ATTENTION_RATES)
    assert all(len(values) in lengths and min(values) > 0 for values in rates.compute.values())
    assert set(rates.host) == {
        "forward",
        "backward",
        "update",
        "view",
        "tensor_of_list",
        "python_call",
        "wait",
        "recurrent_step",
        "gap",
        "byte",
        "latency",
    }


# -------------------------------------------------------------------------------------------------
# host and GPU


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


# -------------------------------------------------------------------------------------------------
# whole predictions


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


RECORDS = Path(__file__).parents[2] / "benchmarks" / "accuracy"


def test_rows_that_the_table_was_made_from_are_named_and_exist() -> None:
    files = [RECORDS / f"{kind}h200-torch-2.11/rows.jsonl" for kind in ("", "compiled-")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    rows = {json.loads(line)["row"] for line in lines}
    assert shipped().calibrated_on and set(shipped().calibrated_on) <= rows
    assert len(set(shipped().calibrated_on)) < len(rows)


WITH_TF32 = """
import torch

def build(*, batch_size=64, switch=""):
    exec(switch)
    linear = [torch.nn.Linear(2048, 2048) for _ in range(3)]
    images = torch.nn.Unflatten(1, (8, 16, 16))
    model = torch.nn.Sequential(*linear, images, torch.nn.Conv2d(8, 8, 3)).cuda()
    x = torch.randn(32 * batch_size, 2048, device="cuda")

    def step():
        model(x).square().mean().backward()
        model.zero_grad()

    return step
"""
SWITCHES = {
    "": False,
    "torch.set_float32_matmul_precision('high')": True,
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": True,
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": False,
}


PRODUCTS_AND_COPIES = """
import torch

def build(*, code=""):
    a, b = (torch.randn(256, 512, device="cuda") for _ in range(2))
    out, large = torch.empty(256, 256, device="cuda"), torch.zeros(1 << 26, device="cuda")
    pinned, pageable = (torch.empty(1 << 26, pin_memory=is_pinned) for is_pinned in (True, False))
    images, up = (torch.randn(size, device="cuda") for size in ((2, 8, 9, 9), (8, 4, 3, 3)))
    names = dict(locals(), torch=torch)
    return lambda: exec(code, names)
"""


def step_of(code: str, folder: Path) -> StepForecast:
    (folder / "w.py").write_text(PRODUCTS_AND_COPIES)
    step = vramcast.predict(f"{folder / 'w.py'}:build", gpu="h200", code=code).step
    assert step is not None
    return step


def test_a_product_is_counted_the_same_with_a_place_for_its_result(tmp_path: Path) -> None:
    codes = ("torch.mm(a, b.t())", "torch.mm(a, b.t(), out=out)")
    plain, with_place = (step_of(code, tmp_path) for code in codes)
    assert plain.flops == with_place.flops == 2.0 * 256 * 256 * 512


def test_a_transposed_convolution_is_counted_by_its_input(tmp_path: Path) -> None:
    code = "torch.nn.functional.conv_transpose2d(images, up, stride=2)"
    step = step_of(code, tmp_path)
    assert step.flops == 2.0 * (2 * 8 * 9 * 9) * (4 * 3 * 3)


def test_copies_to_and_from_the_host_take_their_time_and_pinned_memory_less(tmp_path: Path) -> None:
    seconds = {
        code: step_of(code, tmp_path).seconds
        for code in ("large.copy_(pinned)", "large.copy_(pageable)", "pinned.copy_(large)")
    }
    num_bytes = 4 << 26
    assert all(seconds > num_bytes / 64e9 for seconds in seconds.values())
    assert seconds["large.copy_(pageable)"] > 3 * seconds["large.copy_(pinned)"]


def test_a_copy_that_transposes_takes_several_times_as_long(tmp_path: Path) -> None:
    make = "x = large.view(8192, 8192).to(torch.bfloat16); "
    codes = (make, f"{make}x.clone()", f"{make}x.t().contiguous()")
    without, straight, across = (step_of(code, tmp_path).device_seconds for code in codes)
    assert across - without > 4 * (straight - without) > 0


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("large.view(-1, 64).index_select(0, index)", 2),
        ("large.view(-1, 64)[index]", 2),
        ("large.view(-1, 64).index_add_(0, index, rows)", 3),
        ("large.view(-1, 64).index_put_((index,), rows, accumulate=True)", 3),
    ],
)
def test_of_a_table_only_rows_that_are_named_are_moved(
    tmp_path: Path, code: str, passes: int
) -> None:
    make = "index = torch.arange(100, device='cuda'); rows = torch.zeros(100, 64, device='cuda'); "
    without, step = (step_of(each, tmp_path) for each in (make, make + code))
    moved = step.moved_bytes - without.moved_bytes
    assert moved == pytest.approx(passes * 100 * 64 * 4 + 100 * 8)


def test_the_gradient_of_a_table_sees_its_rows_and_places(tmp_path: Path) -> None:
    """An H200 took 0.82 ms for 524,288 rows of 64 numbers in 500,000 places."""
    code = "index = torch.zeros(524288, dtype=torch.long, device='cuda'); torch.ops.aten."
    code += "embedding_dense_backward(large[: 1 << 25].view(-1, 64), index, 500000, -1, False)"
    assert step_of(code, tmp_path).device_seconds == pytest.approx(8.2e-4, rel=0.15)


def test_batch_norm_of_a_matrix_has_the_kernels_of_channels_last(tmp_path: Path) -> None:
    """An H200 took 0.21 ms for 65,536 x 768 in fp32."""
    code = "torch.nn.functional.batch_norm(large[:65536 * 768].view(-1, 768), *[None] * 4, True)"
    assert step_of(code, tmp_path).device_seconds == pytest.approx(2.1e-4, rel=0.1)
    short = code.replace("large[:", "large.bfloat16()[:")
    cast = step_of("large.bfloat16()", tmp_path).device_seconds
    assert step_of(short, tmp_path).device_seconds - cast < 4e-4


def test_a_norm_without_weights_has_no_sums_over_its_rows(tmp_path: Path) -> None:
    """An H200 took 0.105 ms for the gradient of 36,864 x 1,024, several times as long with them."""
    code = "x = large[: 36864 * 1024].view(-1, 1024).requires_grad_(); {}"
    code += "torch.nn.functional.layer_norm(x, (1024,), w).backward(x.detach())"
    made = ("w = None; ", "w = torch.ones(1024, device='cuda', requires_grad=True); ")
    bare, with_weights = (step_of(code.format(w), tmp_path).device_seconds for w in made)
    assert with_weights - bare > 1e-4


def test_products_in_tf32_are_faster_however_they_were_switched_on(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WITH_TF32)
    seconds = {
        text: vramcast.predict(f"{tmp_path / 'w.py'}:build", gpu="h200", switch=text).step_seconds
        for text in SWITCHES
    }
    plain = seconds[""]
    assert plain is not None
    assert {
        text: value is not None and value < plain / 2 for text, value in seconds.items()
    } == SWITCHES


def test_a_closure_may_be_called_once_where_it_was_called_often() -> None:
    call = addition(0.0)._replace(operator=EVALUATION, access=NO_KERNEL)
    once, often = (forecast_step([call, addition(1e9)] * n, H200) for n in (1, 10))
    assert often.seconds > 5 * once.seconds
    assert often.seconds_low == pytest.approx(once.seconds_low, rel=0.1)


def test_an_operator_on_the_host_takes_the_time_of_its_bytes() -> None:
    small, large = (
        forecast_step([OperatorWork("vramcast::host", -1, 0.0, 0.0, (size, 0, 0, 0), 0, 0)], H200)
        for size in (10**5, 10**9)
    )
    assert small.seconds < 1e-4 and 0.03 < large.seconds < 0.1
    assert large.moved_bytes == 0  # on the GPU
