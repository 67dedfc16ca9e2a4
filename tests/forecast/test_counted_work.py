"""What the simulation counts of a step's operators, for their times."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_works import H200, addition

import vramcast
from vramcast.forecast.timing.pipeline import forecast_step
from vramcast.records.prediction import StepForecast
from vramcast.tracing.work import (
    EVALUATION,
    NO_KERNEL,
    OperatorWork,
)

pytestmark = pytest.mark.usefixtures("warm_simulations")
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


def test_an_embedding_bag_reads_each_row_as_often_as_it_is_named(tmp_path: Path) -> None:
    make = "index = torch.zeros(64, 16, dtype=torch.long, device='cuda'); "
    code = "torch.nn.functional.embedding_bag(index, large.view(-1, 64), mode='sum')"
    without, step = (step_of(each, tmp_path).moved_bytes for each in (make, make + code))
    rows, indices = (64 * 16 + 64) * 64 * 4, 64 * 16 * 8
    assert rows < step - without < rows + 3 * indices


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
