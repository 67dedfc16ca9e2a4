"""Kernels that wait for one read after another take longer than their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import vramcast
from vramcast.forecast.timing.kernels import kernel_class, kernel_time
from vramcast.forecast.timing.rates import shipped
from vramcast.forecast.timing.reductions import num_reads
from vramcast.hardware.gpus import find_gpu
from vramcast.tracing.work import BACKWARD, PLAIN, STRIDED, OperatorWork

pytestmark = pytest.mark.usefixtures("warm_simulations")
H200 = find_gpu("h200")
BF16, FP32 = 15, 6


def work_of(
    name: str, num_bytes: float, sizes: tuple[int, int, int, int], access: int = PLAIN
) -> OperatorWork:
    return OperatorWork(f"aten::{name}", FP32, 0.0, num_bytes, sizes, BACKWARD, access)


def seconds_of(work: OperatorWork) -> float:
    return kernel_time(work, H200, shipped()).seconds


@pytest.mark.parametrize(
    ("rows", "columns", "microseconds"),
    [(98304, 96, 56), (200704, 96, 77), (262144, 128, 152), (50176, 192, 96), (98304, 288, 102)],
)
def test_the_gradient_of_a_bias_takes_what_it_took_on_an_h200(
    rows: int, columns: int, microseconds: float
) -> None:
    """In steps of unseen.py, in bf16: none of its rates was made from these."""
    moved = 2.0 * (rows + 1) * columns
    work = work_of("sum", moved, (1, 0, 0, columns), STRIDED)._replace(dtype=BF16)
    assert seconds_of(work) == pytest.approx(1e-6 * microseconds, rel=0.25)


def test_the_block_that_ends_last_reads_the_sums_of_all_others() -> None:
    assert num_reads(50_176, 192, 132) > 4 * num_reads(50_176, 12_288, 132)
    assert num_reads(100, 512, 132) == 100 / 4 / 4  # four threads, four values at once


def test_the_weight_of_a_norm_has_one_block_for_32_columns_unless_rows_are_very_many() -> None:
    """On an H200 266 us for 50,176 rows of 192 columns, 229 us for 200,704 rows of 96."""
    few = work_of("native_layer_norm_backward", 116e6, (0, 0, 0, 50_176))
    many = work_of("native_layer_norm_backward", 232.8e6, (0, 0, 0, 200_704))
    assert seconds_of(few) == pytest.approx(266e-6, rel=0.25)
    assert seconds_of(many) == pytest.approx(229e-6, rel=0.35)


def test_a_long_sum_of_small_products_is_cut_into_many_parts() -> None:
    """On an H200 155 us."""
    flops, sizes = 2.0 * 64 * 100 * 409_600, (1, 64, 100, 409_600)
    work = OperatorWork("aten::mm", FP32, flops, 4.0 * 164 * 409_600, sizes, BACKWARD, PLAIN)
    assert seconds_of(work) == pytest.approx(155e-6, rel=0.3)


@pytest.mark.parametrize(
    ("name", "sizes", "recorded"),
    [
        ("linalg_cholesky_ex", (1, 2000, 0, 0), 753e-6),
        ("linalg_solve_triangular", (1, 2000, 8, 0), 228e-6),
        ("_linalg_solve_ex", (1, 1000, 8, 0), 2381e-6),
        ("linalg_qr", (16, 128, 0, 0), 7875e-6),
        ("_linalg_eigh", (16, 128, 0, 0), 23.3e-3),
        ("_linalg_svd", (256, 32, 0, 0), 298e-6),
    ],
)
def test_factorizations_take_what_was_recorded(
    name: str, sizes: tuple[int, int, int, int], recorded: float
) -> None:
    one = work_of(name, 32e6, sizes)
    assert kernel_class(one, shipped()) == "factorizations"
    assert seconds_of(one) == pytest.approx(recorded, rel=0.35)


def test_nll_loss_reads_one_score_of_a_row() -> None:
    scores = 1.6e9
    forward = work_of("nll_loss_forward", scores, (0, 0, 0, 8192), STRIDED)
    backward = work_of("nll_loss_backward", 2 * scores, (0, 0, 0, 8192), STRIDED)
    assert seconds_of(forward) < 5e-5
    assert seconds_of(backward) < 1.5 * scores / H200.bandwidth_bytes_per_second


def test_an_operator_in_place_has_the_kernel_of_the_other() -> None:
    assert seconds_of(work_of("silu_", 1e9, (0, 0, 0, 0))) == pytest.approx(
        seconds_of(work_of("silu", 1e9, (0, 0, 0, 0))), rel=0.05
    )


def device_seconds(code: str, folder: Path) -> float:
    text = "import torch\ndef build():\n"
    text += "    x = torch.zeros(16, 1024, 1024, device='cuda')\n"
    text += "    norm = torch.nn.BatchNorm2d(64, device='cuda')\n"
    text += f"    return lambda: {code}\n"
    (folder / "w.py").write_text(text)
    step = vramcast.predict(f"{folder / 'w.py'}:build", gpu="h200").step
    assert step is not None
    return step.device_seconds


def test_what_kernels_in_python_do_has_the_rates_that_were_recorded(tmp_path: Path) -> None:
    """On an H200 topk takes 0.5 ms; channels last are copied before a softmax over them."""
    assert device_seconds("x.topk(16)", tmp_path) == pytest.approx(5e-4, rel=0.25)
    once, twice = (device_seconds(f"x.roll({a}, {a})", tmp_path) for a in ((1,), (1, 2)))
    assert twice == pytest.approx(2 * once, rel=0.1)
    dense = device_seconds("x.softmax(1)", tmp_path)
    assert device_seconds("x.transpose(1, 2).softmax(1)", tmp_path) > dense + 4e-5
    norm = device_seconds("norm(x.view(256, 64, 32, 32))", tmp_path)
    assert norm > 2 * 2 * 4 * 2**24 / H200.bandwidth_bytes_per_second


def test_batch_norm_with_channels_last_has_another_kernel(tmp_path: Path) -> None:
    """In fp32 on an H200 372 us for 256 x 32 pictures of 112 x 112, where channels are last."""
    shape, last = "256, 64, 56, 56", ".to(memory_format=torch.channels_last)"
    made = f"torch.zeros({shape}, device='cuda')"
    plain, other = (device_seconds(f"norm({x})", tmp_path) for x in (made, made + last))
    copied = device_seconds(made + last, tmp_path) - device_seconds(made, tmp_path)
    assert other - copied < 0.9 * plain
    recorded = work_of("cudnn_batch_norm", 822e6, (1, 256, 112**2, 32), STRIDED)
    assert seconds_of(recorded) == pytest.approx(372e-6, rel=0.25)


def test_a_batch_norm_that_is_not_trained_goes_once_through_what_it_normalises(
    tmp_path: Path,
) -> None:
    """On an H200 in fp32 92 us for 32 x 256 volumes of 16 x 16 x 16; gradients of 64 x 336
    pictures of 56 x 56 take 224 us."""
    called = "norm.{}()(torch.zeros(256, 64, 56, 56, device='cuda'))"
    trained, kept = (device_seconds(called.format(way), tmp_path) for way in ("train", "eval"))
    made = device_seconds("torch.zeros(256, 64, 56, 56, device='cuda')", tmp_path)
    assert kept - made < 0.75 * (trained - made)
    forward = work_of("cudnn_batch_norm", 8.0 * 32 * 256 * 16**3, (2, 32, 16**3, 256), STRIDED)
    assert seconds_of(forward) == pytest.approx(92e-6, rel=0.25)
    sizes = (2, 64, 56**2, 336)
    backward = work_of("native_batch_norm_backward", 8.0 * 64 * 336 * 56**2, sizes, PLAIN)
    assert seconds_of(backward) == pytest.approx(224e-6, rel=0.1)
